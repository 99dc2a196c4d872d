#include <Python.h>
#include <stdlib.h>

#include "calls.h"
#include "crossinfer.h"
#include "failure.h"
#include "host_python.h"
#include "inner.h"
#include "platform.h"

enum state { NEW, RUNNING, ENDING, ENDED };

static cx_mutex mutex = CX_MUTEX_INIT;
static cx_condition changed = CX_CONDITION_INIT; /* calls fell to 0, or the end came */
static enum state state = NEW;
static unsigned calls = 0;
static long process = 0;

/* Called with the mutex. */
static int32_t start(const char *python)
{
    int32_t code;
    if (state == RUNNING)
        return CROSSINFER_OK;
    if (state != NEW)
        return cx_fail(CROSSINFER_SHUT_DOWN, "%s", "crossinfer_shutdown was called.");
    process = cx_process();
    code = cx_python_start(python);
    if (code == CROSSINFER_OK)
        state = RUNNING;
    return code;
}

/* Asked before the mutex is taken, which another thread may have held at the fork. */
static int is_forked(void)
{
    return process != 0 && process != cx_process();
}

int32_t cx_start(const char *python)
{
    int32_t code;
    cx_lock(&mutex);
    if (state == RUNNING && python != NULL)
        code = cx_fail(CROSSINFER_INVALID_USE,
                       "Python was started already, before %s was named.", python);
    else
        code = start(python);
    cx_unlock(&mutex);
    return code;
}

int32_t cx_enter(void)
{
    int32_t code;
    if (is_forked())
        return cx_fail(CROSSINFER_INVALID_USE, "%s",
                       "This process was forked from the one that started Python; start a new "
                       "one.");
    cx_lock(&mutex);
    code = start(NULL);
    if (code == CROSSINFER_OK)
        calls++;
    cx_unlock(&mutex);
    return code;
}

void cx_leave(void)
{
    cx_lock(&mutex);
    if (--calls == 0)
        cx_wake_all(&changed);
    cx_unlock(&mutex);
}

/* Whether this call is the one that ends what runs; waits for another that does. */
static int begin_end(void)
{
    int mine;
    if (is_forked())
        return 0;
    cx_lock(&mutex);
    while (state == ENDING)
        cx_wait(&changed, &mutex);
    mine = state == RUNNING && Py_IsInitialized();
    if (mine)
        state = ENDING;
    else if (state == NEW)
        state = ENDED;
    cx_unlock(&mutex);
    return mine;
}

static void set_ended(void)
{
    cx_lock(&mutex);
    state = ENDED;
    cx_wake_all(&changed);
    cx_unlock(&mutex);
}

int32_t cx_shutdown(void)
{
    if (!begin_end())
        return CROSSINFER_OK;
    inner_close_all(); /* ends what other threads wait for */
    cx_lock(&mutex);
    while (calls > 0)
        cx_wait(&changed, &mutex);
    cx_unlock(&mutex);
    cx_python_stop();
    set_ended();
    return CROSSINFER_OK;
}

/* Python itself stays: other threads of the host may be within a call. */
static void destroy_models(void)
{
    if (begin_end()) {
        inner_close_all();
        set_ended();
    }
}

void cx_destroy_at_exit(void)
{
    /* Functions registered later run earlier; drivers register theirs when a model is loaded. */
    atexit(destroy_models);
}
