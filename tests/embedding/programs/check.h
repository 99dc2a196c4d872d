/* Checks for test programs: every one that fails is told, and main returns failures. */
#include <stdio.h>
#include <string.h>

#include "crossinfer.h"

static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition,       \
                   crossinfer_last_error());                                                       \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* A call fails with this code, and says something that holds `text`. */
#define CHECK_ERROR(call, code, text)                                                              \
    do {                                                                                           \
        crossinfer_status got = (call);                                                            \
        if (got != (code) || strstr(crossinfer_last_error(), (text)) == NULL) {                    \
            printf("%s:%d: %s gave %d (%s), not %d with %s\n", __FILE__, __LINE__, #call,          \
                   (int)got, crossinfer_last_error(), (int)(code), (text));                        \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
