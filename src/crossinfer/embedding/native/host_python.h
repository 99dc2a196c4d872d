/* The process's Python: found, started, given our package, and ended. */
#ifndef CROSSINFER_HOST_PYTHON_H
#define CROSSINFER_HOST_PYTHON_H

#include <stdint.h>

/* Start Python from the executable `named` (NULL: see crossinfer_start) unless the process runs it
 * already, and load our package. May be tried again after an error. For one thread at a time. */
int32_t cx_python_start(const char *named);

/* End Python if it was started here. Nobody is within it. */
void cx_python_stop(void);

/* Made by cffi: fills the inner functions. 0 if that went well. */
int cx_fill_inner(void);

#endif
