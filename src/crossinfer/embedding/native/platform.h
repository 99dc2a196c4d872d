/* What differs between systems: locks, thread-local memory, processes, where this library lies. */
#ifndef CROSSINFER_PLATFORM_H
#define CROSSINFER_PLATFORM_H

#include <stddef.h>

#ifdef _WIN32
#  include <windows.h>
typedef SRWLOCK cx_mutex;
typedef CONDITION_VARIABLE cx_condition;
#  define CX_MUTEX_INIT SRWLOCK_INIT
#  define CX_CONDITION_INIT CONDITION_VARIABLE_INIT
#  define CX_THREAD_LOCAL __declspec(thread)
#  define cx_lock(mutex) AcquireSRWLockExclusive(mutex)
#  define cx_unlock(mutex) ReleaseSRWLockExclusive(mutex)
#  define cx_wait(condition, mutex) SleepConditionVariableSRW(condition, mutex, INFINITE, 0)
#  define cx_wake_all(condition) WakeAllConditionVariable(condition)
#  define cx_process() ((long)GetCurrentProcessId())
#  define CX_BESIDE "\\python\\python.exe"
typedef void(__cdecl *cx_signal)(int);
#else
#  include <pthread.h>
#  include <signal.h>
#  include <unistd.h>
typedef pthread_mutex_t cx_mutex;
typedef pthread_cond_t cx_condition;
#  define CX_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#  define CX_CONDITION_INIT PTHREAD_COND_INITIALIZER
#  define CX_THREAD_LOCAL __thread
#  define cx_lock(mutex) pthread_mutex_lock(mutex)
#  define cx_unlock(mutex) pthread_mutex_unlock(mutex)
#  define cx_wait(condition, mutex) pthread_cond_wait(condition, mutex)
#  define cx_wake_all(condition) pthread_cond_broadcast(condition)
#  define cx_process() ((long)getpid())
#  define CX_BESIDE "/python/bin/python3"
typedef struct sigaction cx_signal;
#endif

/* The path of this library's folder, followed by `file`; 0 if it does not fit or is not known. */
int cx_path_beside_library(const char *file, char *path, size_t capacity);

int cx_file_exists(const char *path);

/* What an interrupt (Ctrl-C) does in this process. */
void cx_get_interrupt(cx_signal *action);
void cx_set_interrupt(const cx_signal *action);

/* Run a function on a thread of its own; 0 if there can be none. */
int cx_start_thread(void (*run)(void));

/* Python's packages take its functions from the process, so they must be visible there, however
 * the host loaded this library. */
void cx_show_python_to_packages(void);

/* Keep this library in memory: threads of Python may run in it until the process ends. */
void cx_stay_loaded(void);

#endif
