#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "platform.h"

static CX_THREAD_LOCAL char error[2048];

void cx_set_error(const char *text)
{
    size_t size = strlen(text);
    if (size >= sizeof error) { /* cut between characters, and say so */
        size = sizeof error - sizeof " ...";
        while (size > 0 && (text[size] & 0xc0) == 0x80)
            size--;
        memcpy(error, text, size);
        strcpy(error + size, " ...");
        return;
    }
    memcpy(error, text, size + 1);
}

const char *cx_error(void)
{
    return error;
}

int32_t cx_fail(int32_t code, const char *format, const char *detail)
{
    char text[sizeof error];
    snprintf(text, sizeof text, format, detail);
    cx_set_error(text);
    return code;
}
