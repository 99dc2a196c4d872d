/* generate MODEL MODEL_OPTIONS prompt|chat TEXT ANSWER_OPTIONS: figures, token ids, then the text. */
#include <stdlib.h>

#include "check.h"

int main(int argc, char **argv)
{
    crossinfer_model model;
    crossinfer_answer answer;
    crossinfer_stats stats;
    crossinfer_status status;
    const char *piece;
    size_t length, count, bytes = 0;
    char *text = NULL;

    if (argc != 6)
        return 2;
    CHECK(crossinfer_create(argv[1], argv[2], &model) == CROSSINFER_OK);
    if (strcmp(argv[3], "chat") == 0)
        CHECK(crossinfer_chat(model, argv[4], argv[5], &answer) == CROSSINFER_OK);
    else
        CHECK(crossinfer_prompt(model, argv[4], argv[5], &answer) == CROSSINFER_OK);
    if (failures)
        return 1;
    while ((status = crossinfer_next(answer, -1, &piece, &length)) == CROSSINFER_OK) {
        CHECK(length > 0 && piece[length] == '\0');
        text = realloc(text, bytes + length);
        memcpy(text + bytes, piece, length);
        bytes += length;
    }
    CHECK(status == CROSSINFER_END && length == 0 && piece[0] == '\0');
    CHECK(crossinfer_next(answer, 0, &piece, NULL) == CROSSINFER_END);

    stats.struct_size = sizeof stats;
    CHECK(crossinfer_get_stats(answer, &stats) == CROSSINFER_OK);
    CHECK(stats.struct_size == sizeof stats);
    CHECK(stats.weight_bytes > 0 && stats.kv_bytes > 0 && stats.activation_bytes > 0);
    CHECK(stats.first_token_s > 0 && stats.prefill_tokens_per_s > 0);
    printf("%d %u %u\n", (int)stats.finish_reason, stats.prompt_tokens, stats.generated_tokens);

    CHECK(crossinfer_get_tokens(answer, NULL, 0, &count) == CROSSINFER_OK);
    CHECK(count == stats.generated_tokens);
    int32_t *tokens = calloc(count + 1, sizeof *tokens);
    tokens[count] = -1;
    CHECK(crossinfer_get_tokens(answer, tokens, count, &count) == CROSSINFER_OK);
    CHECK(tokens[count] == -1);
    for (size_t i = 0; i < count; i++)
        printf("%d ", (int)tokens[i]);
    printf("\n");
    fwrite(text, 1, bytes, stdout);
    free(tokens);
    free(text);
    CHECK(crossinfer_release(answer) == CROSSINFER_OK);
    CHECK(crossinfer_destroy(model) == CROSSINFER_OK);
    CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    return failures;
}
