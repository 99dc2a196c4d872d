#ifndef _WIN32
#  define _GNU_SOURCE /* dladdr */
#  include <dlfcn.h>
#endif

#include <Python.h>
#include <signal.h>
#include <string.h>

#include "platform.h"

static int put(const char *library, const char *file, char *path, size_t capacity)
{
    const char *end = strrchr(library, '/');
#ifdef _WIN32
    end = strrchr(library, '\\');
#endif
    size_t folder = end == NULL ? 0 : (size_t)(end - library);
    if (end == NULL || folder + strlen(file) >= capacity)
        return 0;
    memcpy(path, library, folder);
    strcpy(path + folder, file);
    return 1;
}

#ifdef _WIN32

static HMODULE this_library(DWORD flags)
{
    HMODULE module = NULL;
    flags |= GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
    GetModuleHandleExW(flags, (const wchar_t *)(void *)&put, &module);
    return module;
}

int cx_path_beside_library(const char *file, char *path, size_t capacity)
{
    wchar_t wide[1024];
    char library[4096];
    DWORD size = GetModuleFileNameW(
        this_library(GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT), wide, 1024);
    if (size == 0 || size >= 1024 ||
        !WideCharToMultiByte(CP_UTF8, 0, wide, -1, library, sizeof library, NULL, NULL))
        return 0;
    return put(library, file, path, capacity);
}

int cx_file_exists(const char *path)
{
    wchar_t wide[1024];
    return MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 1024) != 0 &&
           GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
}

void cx_get_interrupt(cx_signal *action)
{
    *action = signal(SIGINT, SIG_DFL);
    signal(SIGINT, *action);
}

void cx_set_interrupt(const cx_signal *action)
{
    signal(SIGINT, *action);
}

static DWORD WINAPI run_thread(void *run)
{
    ((void (*)(void))run)();
    return 0;
}

int cx_start_thread(void (*run)(void))
{
    HANDLE thread = CreateThread(NULL, 0, run_thread, (void *)run, 0, NULL);
    return thread != NULL && CloseHandle(thread);
}

void cx_show_python_to_packages(void) {} /* packages name python3.dll or python3xx.dll */

void cx_stay_loaded(void)
{
    this_library(GET_MODULE_HANDLE_EX_FLAG_PIN);
}

#else

int cx_path_beside_library(const char *file, char *path, size_t capacity)
{
    Dl_info info;
    if (!dladdr((void *)(size_t)&put, &info) || info.dli_fname == NULL)
        return 0;
    return put(info.dli_fname, file, path, capacity);
}

int cx_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

void cx_get_interrupt(cx_signal *action)
{
    sigaction(SIGINT, NULL, action);
}

void cx_set_interrupt(const cx_signal *action)
{
    sigaction(SIGINT, action, NULL);
}

static void *run_thread(void *run)
{
    sigset_t all; /* the host's signals are for the host's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    ((void (*)(void))(size_t)run)();
    return NULL;
}

int cx_start_thread(void (*run)(void))
{
    pthread_t thread;
    return pthread_create(&thread, NULL, run_thread, (void *)(size_t)run) == 0 &&
           pthread_detach(thread) == 0;
}

static void keep(void *address, int flags)
{
    Dl_info info;
    if (dladdr(address, &info) && info.dli_fname != NULL)
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | flags);
}

void cx_show_python_to_packages(void)
{
    keep((void *)(size_t)&Py_IsInitialized, RTLD_GLOBAL);
}

void cx_stay_loaded(void)
{
    keep((void *)(size_t)&put, RTLD_NODELETE);
}

#endif
