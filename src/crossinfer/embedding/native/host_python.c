#include <Python.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossinfer.h"
#include "failure.h"
#include "host_python.h"
#include "platform.h"

#define MODULE "crossinfer.embedding.entries"

/* Python starts and ends on a thread of its own: it takes that for the process's main thread, which
 * no thread of the host can be, since any may call first and end early. */
static struct {
    cx_mutex mutex;
    cx_condition changed;
    enum { STARTING, STARTED, FAILED, STOPPING, STOPPED } phase;
    char executable[4096];
    const char *reason; /* why it failed; static */
} python = {CX_MUTEX_INIT, CX_CONDITION_INIT, STARTING, "", NULL};

/* The Python whose packages are used; 0 with an error if there is none. */
static int find_python(const char *named, char *path, size_t capacity)
{
    const char *variable = getenv("CROSSINFER_PYTHON");
    if (named == NULL && variable != NULL && *variable != '\0')
        named = variable;
    if (named != NULL) {
        if (cx_file_exists(named) && snprintf(path, capacity, "%s", named) < (int)capacity)
            return 1;
        cx_fail(CROSSINFER_PYTHON,
                "There is no Python at %s; name the executable of the one to use.", named);
        return 0;
    }
    if (cx_path_beside_library(CX_BESIDE, path, capacity) && cx_file_exists(path))
        return 1;
    if (cx_file_exists(CROSSINFER_BUILT_WITH))
        return snprintf(path, capacity, "%s", CROSSINFER_BUILT_WITH) < (int)capacity;
    cx_fail(CROSSINFER_PYTHON,
            "No Python was found: there is none beside libcrossinfer, and %s, which built it, is "
            "not there. Set CROSSINFER_PYTHON to a Python that has the package crossinfer.",
            CROSSINFER_BUILT_WITH);
    return 0;
}

static PyStatus initialize(const char *executable)
{
    PyPreConfig early;
    PyConfig config;
    PyStatus status;

    /* Isolated: the host's PYTHON... variables, its user's packages, its locale, its signals and
     * its standard streams are not ours. */
    PyPreConfig_InitIsolatedConfig(&early);
    early.utf8_mode = 1;
    status = Py_PreInitialize(&early);
    if (PyStatus_Exception(status))
        return status;
    PyConfig_InitIsolatedConfig(&config);
    status = PyConfig_SetBytesString(&config, &config.program_name, executable);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    return status;
}

static void set_phase(int phase)
{
    cx_lock(&python.mutex);
    python.phase = phase;
    cx_wake_all(&python.changed);
    cx_unlock(&python.mutex);
}

static void wait_while(int phase)
{
    cx_lock(&python.mutex);
    while ((int)python.phase == phase)
        cx_wait(&python.changed, &python.mutex);
    cx_unlock(&python.mutex);
}

static void python_thread(void)
{
    PyThreadState *thread;
    PyStatus status;
    cx_signal interrupt;

    cx_get_interrupt(&interrupt);
    status = initialize(python.executable);
    if (PyStatus_Exception(status)) {
        python.reason = status.err_msg != NULL ? status.err_msg : "it wanted to exit";
        set_phase(FAILED);
        return;
    }
    /* One takes this thread for the main one; the other takes interrupts, but they are the host's
     * to handle. */
    Py_XDECREF(PyImport_ImportModule("threading"));
    Py_XDECREF(PyImport_ImportModule("signal"));
    PyErr_Clear();
    cx_set_interrupt(&interrupt);
    thread = PyEval_SaveThread();
    set_phase(STARTED);
    wait_while(STARTED);
    PyEval_RestoreThread(thread);
    cx_get_interrupt(&interrupt);
    Py_FinalizeEx();
    cx_set_interrupt(&interrupt); /* the default would be back */
    set_phase(STOPPED);
}

/* The exception that is set, as the error of this call. */
static int32_t fail_with_exception(void)
{
    PyObject *kind, *value, *trace, *text = NULL;
    const char *utf8 = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (value != NULL)
        text = PyObject_Str(value);
    if (text != NULL)
        utf8 = PyUnicode_AsUTF8(text);
    cx_fail(CROSSINFER_PYTHON,
            "Python runs, but its package crossinfer cannot be used: %s. Start the process again "
            "with CROSSINFER_PYTHON set to a Python that has it (pip install "
            "'crossinfer[embedding]').",
            utf8 != NULL ? utf8 : "unknown error");
    Py_XDECREF(text);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    return CROSSINFER_PYTHON;
}

static int32_t load_package(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule(MODULE);
    PyObject *checked = NULL;
    int32_t code = CROSSINFER_OK;
    if (module != NULL)
        checked = PyObject_CallMethod(module, "check_version", "s", CROSSINFER_BUILT_VERSION);
    if (checked == NULL)
        code = fail_with_exception();
    Py_XDECREF(checked);
    Py_XDECREF(module);
    PyGILState_Release(gil);
    if (code == CROSSINFER_OK && cx_fill_inner() != 0)
        return cx_fail(CROSSINFER_PYTHON, "%s",
                       "The package crossinfer does not fit libcrossinfer.");
    return code;
}

/* What is half initialized cannot be started again. */
static int32_t fail_for_good(void)
{
    char text[1024];
    snprintf(text, sizeof text, "Python %d.%d could not start from %.512s: %.256s. %s",
             PY_MAJOR_VERSION, PY_MINOR_VERSION, python.executable, python.reason,
             "The process has to be started again.");
    return cx_fail(CROSSINFER_PYTHON, "%s", text);
}

int32_t cx_python_start(const char *named)
{
    if (python.phase == FAILED)
        return fail_for_good();
    cx_show_python_to_packages();
    cx_stay_loaded();
    if (!Py_IsInitialized()) {
        if (!find_python(named, python.executable, sizeof python.executable))
            return CROSSINFER_PYTHON;
        if (!cx_start_thread(python_thread))
            return cx_fail(CROSSINFER_OUT_OF_MEMORY, "%s", "There can be no thread for Python.");
        wait_while(STARTING);
        if (python.phase == FAILED)
            return fail_for_good();
    } else if (named != NULL &&
               (python.phase != STARTED || strcmp(named, python.executable) != 0)) {
        return cx_fail(CROSSINFER_INVALID_USE,
                       "The process runs Python already, so %s cannot be started; give NULL.",
                       named);
    }
    return load_package();
}

void cx_python_stop(void)
{
    if (python.phase == STARTED) {
        set_phase(STOPPING);
        wait_while(STOPPING);
    }
}
