/* slices MODEL DISPATCHES MS: a game's frame loop on one thread; prints the text. */
#include <stdlib.h>

#include "check.h"

int main(int argc, char **argv)
{
    crossinfer_model model;
    crossinfer_answer answer;
    crossinfer_status status, worked;
    const char *piece;
    uint32_t submitted, most, total = 0;
    long frames = 0;

    if (argc != 4)
        return 2;
    most = (uint32_t)atoi(argv[2]);
    CHECK(crossinfer_create(argv[1], "{\"device\": \"cpu\", \"sliced\": true}", &model) ==
          CROSSINFER_OK);
    CHECK(crossinfer_step(model, 1, 0, &submitted) == CROSSINFER_IDLE && submitted == 0);
    CHECK(crossinfer_prompt(model, "Once upon a time", "{\"max_tokens\": 8}", &answer) ==
          CROSSINFER_OK);
    CHECK(crossinfer_next(answer, 50, &piece, NULL) == CROSSINFER_PENDING);
    CHECK(piece != NULL && piece[0] == '\0');
    do {
        worked = crossinfer_step(model, most, atof(argv[3]), &submitted);
        CHECK(worked == CROSSINFER_OK || worked == CROSSINFER_IDLE);
        CHECK(most == 0 || submitted <= most);
        total += submitted;
        frames++;
        status = crossinfer_next(answer, 0, &piece, NULL);
        if (status == CROSSINFER_OK)
            fputs(piece, stdout);
    } while (status == CROSSINFER_OK || status == CROSSINFER_PENDING);
    CHECK(status == CROSSINFER_END);
    CHECK(most == 0 || frames >= total / most);
    CHECK(crossinfer_destroy(model) == CROSSINFER_OK);
    CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    return failures;
}
