/* What went wrong in a thread's last call that failed. */
#ifndef CROSSINFER_FAILURE_H
#define CROSSINFER_FAILURE_H

#include <stdint.h>

/* The text of crossinfer_last_error for this thread; what is too long ends in " ...". */
void cx_set_error(const char *text);
const char *cx_error(void);

/* Set the text, with `detail` for the format's one %s, and return `code`. */
int32_t cx_fail(int32_t code, const char *format, const char *detail);

#endif
