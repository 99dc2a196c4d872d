/* Calls of the host, between the start of Python and its end. */
#ifndef CROSSINFER_CALLS_H
#define CROSSINFER_CALLS_H

#include <stdint.h>

/* Bracket every call that needs Python; starts it. Leave only after CROSSINFER_OK. */
int32_t cx_enter(void);
void cx_leave(void);

int32_t cx_start(const char *python);
int32_t cx_shutdown(void);

/* Have models destroyed before the process unloads what they run on. */
void cx_destroy_at_exit(void);

#endif
