/*
 * A host that isn't Python: loads a model, answers a prompt piece by piece, and tells figures.
 *
 *     cc host_cpu.c -I LIB -L LIB -lcrossinfer -Wl,-rpath,LIB -o host_cpu   (LIB: see make libcrossinfer)
 *     ./host_cpu model.gguf "Once upon a time"
 */
#include <stdio.h>

#include "crossinfer.h"

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, crossinfer_last_error());
    crossinfer_shutdown();
    return 1;
}

int main(int argc, char **argv)
{
    crossinfer_model model;
    crossinfer_answer answer;
    crossinfer_stats stats;
    crossinfer_status status;
    const char *piece;

    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    if (crossinfer_create(argv[1], "{\"device\": \"cpu\"}", &model) < 0)
        return failed("The model cannot be loaded");
    if (crossinfer_prompt(model, argv[2], "{\"max_tokens\": 40}", &answer) < 0)
        return failed("The prompt cannot be answered");
    while ((status = crossinfer_next(answer, -1, &piece, NULL)) == CROSSINFER_OK) {
        fputs(piece, stdout);
        fflush(stdout);
    }
    if (status < 0)
        return failed("The answer ended early");
    stats.struct_size = sizeof stats;
    if (crossinfer_get_stats(answer, &stats) != CROSSINFER_OK)
        return failed("There are no figures");
    printf("\n");
    fprintf(stderr, "%u tokens, %.1f tokens/s\n", stats.generated_tokens,
            stats.decode_tokens_per_s);
    crossinfer_release(answer);
    crossinfer_destroy(model);
    crossinfer_shutdown();
    return 0;
}
