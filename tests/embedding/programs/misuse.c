/* misuse MODEL: everything that can be wrong about a call gives a code and a sentence. */
#include <locale.h>
#include <signal.h>

#include "check.h"

static void lock(void *user)
{
    (void)user;
}

static void arguments(const char *path, crossinfer_model model)
{
    crossinfer_model made = (crossinfer_model)&made;
    crossinfer_answer answer = (crossinfer_answer)&answer;
    crossinfer_vulkan_device vulkan;
    int thing;

    CHECK_ERROR(crossinfer_create(path, NULL, NULL), CROSSINFER_INVALID_ARGUMENT, "null");
    CHECK_ERROR(crossinfer_create("/no/such.gguf", NULL, &made), CROSSINFER_FORMAT, "/no/such");
    CHECK(made == NULL);
    CHECK_ERROR(crossinfer_create("\xff\xfe", NULL, &made), CROSSINFER_INVALID_ARGUMENT, "UTF-8");
    CHECK_ERROR(crossinfer_create(path, "\xc3(", &made), CROSSINFER_INVALID_ARGUMENT, "UTF-8");
    CHECK_ERROR(crossinfer_create(path, "{", &made), CROSSINFER_INVALID_ARGUMENT, "JSON");
    CHECK_ERROR(crossinfer_create(path, "", &made), CROSSINFER_INVALID_ARGUMENT, "JSON");
    CHECK_ERROR(crossinfer_create(path, "[1]", &made), CROSSINFER_INVALID_ARGUMENT, "object");
    CHECK_ERROR(crossinfer_create(path, "{\"contxt\": 5}", &made), CROSSINFER_INVALID_ARGUMENT,
                "'contxt' is unknown");
    CHECK_ERROR(crossinfer_create(path, "{\"context\": \"5\"}", &made),
                CROSSINFER_INVALID_ARGUMENT, "whole number");
    CHECK_ERROR(crossinfer_create(path, "{\"context\": 64, \"context\": 65}", &made),
                CROSSINFER_INVALID_ARGUMENT, "twice");
    CHECK_ERROR(crossinfer_create(path, "{\"sliced\": 1}", &made), CROSSINFER_INVALID_ARGUMENT,
                "true or false");
    CHECK_ERROR(crossinfer_create(path, "{\"context\": 1000000}", &made), CROSSINFER_REQUEST,
                "context");
    CHECK_ERROR(crossinfer_create(path, "{\"device\": \"abacus\"}", &made),
                CROSSINFER_INVALID_USE, "abacus");
    CHECK_ERROR(crossinfer_create_with_device(NULL, &thing, path, NULL, &made),
                CROSSINFER_INVALID_ARGUMENT, "null");
    CHECK_ERROR(crossinfer_create_with_device(&thing, NULL, path, NULL, &made),
                CROSSINFER_INVALID_ARGUMENT, "null");
    CHECK_ERROR(crossinfer_create_with_vulkan(NULL, path, NULL, &made),
                CROSSINFER_INVALID_ARGUMENT, "null");
    vulkan.struct_size = 8;
    CHECK_ERROR(crossinfer_create_with_vulkan(&vulkan, path, NULL, &made),
                CROSSINFER_INVALID_ARGUMENT, "struct_size");
    memset(&vulkan, 0, sizeof vulkan);
    vulkan.struct_size = sizeof vulkan;
    CHECK(crossinfer_create_with_vulkan(&vulkan, path, NULL, &made) < 0);
    vulkan.lock_queue = lock;
    CHECK_ERROR(crossinfer_create_with_vulkan(&vulkan, path, NULL, &made),
                CROSSINFER_INVALID_ARGUMENT, "both");

    CHECK_ERROR(crossinfer_prompt(model, NULL, NULL, &answer), CROSSINFER_INVALID_ARGUMENT,
                "null");
    CHECK(answer == NULL);
    CHECK_ERROR(crossinfer_prompt(model, "a", NULL, NULL), CROSSINFER_INVALID_ARGUMENT, "null");
    CHECK_ERROR(crossinfer_prompt(model, "\xed\xa0\x80", NULL, &answer),
                CROSSINFER_INVALID_ARGUMENT, "UTF-8"); /* a surrogate is none */
    CHECK_ERROR(crossinfer_prompt(model, "a", "{\"temperature\": -1}", &answer),
                CROSSINFER_REQUEST, "temperature");
    CHECK_ERROR(crossinfer_prompt(model, "a", "{\"temperature\": true}", &answer),
                CROSSINFER_INVALID_ARGUMENT, "temperature");
    CHECK_ERROR(crossinfer_prompt(model, "a", "{\"stop\": \"x\"}", &answer),
                CROSSINFER_INVALID_ARGUMENT, "list of texts");
    CHECK_ERROR(crossinfer_prompt(model, "a", "{\"logit_bias\": {\"x\": 1}}", &answer),
                CROSSINFER_INVALID_ARGUMENT, "logit_bias");
    CHECK_ERROR(crossinfer_prompt(model, "a", "{\"logit_bias\": {\"99999999\": 1}}", &answer),
                CROSSINFER_REQUEST, "logit_bias");
    CHECK_ERROR(crossinfer_chat(model, "{}", NULL, &answer), CROSSINFER_INVALID_ARGUMENT, "list");
    CHECK_ERROR(crossinfer_chat(model, "[{\"role\": \"user\"", NULL, &answer),
                CROSSINFER_INVALID_ARGUMENT, "JSON");
    CHECK_ERROR(crossinfer_chat(model, "[{\"role\": \"user\"}]", NULL, &answer),
                CROSSINFER_TEMPLATE, "content");
    CHECK_ERROR(crossinfer_step(model, 1, 0, NULL), CROSSINFER_REQUEST, "sliced");
    CHECK_ERROR(crossinfer_step(model, 1, -3, NULL), CROSSINFER_REQUEST, "max_ms");
}

static void handles(crossinfer_model model, crossinfer_answer answer)
{
    crossinfer_answer other;
    crossinfer_stats stats;
    const char *piece = "untouched";
    size_t count;
    char stack = 0;
    void *wrong[] = {NULL, &stack, (void *)1234567, (void *)-1, model};

    stats.struct_size = sizeof stats;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        crossinfer_answer bad = (crossinfer_answer)wrong[i];
        CHECK_ERROR(crossinfer_next(bad, 0, &piece, NULL), CROSSINFER_INVALID_HANDLE, "answer");
        CHECK(piece == NULL);
        CHECK_ERROR(crossinfer_cancel(bad), CROSSINFER_INVALID_HANDLE, "answer");
        CHECK_ERROR(crossinfer_get_stats(bad, &stats), CROSSINFER_INVALID_HANDLE, "answer");
        CHECK_ERROR(crossinfer_get_tokens(bad, NULL, 0, &count), CROSSINFER_INVALID_HANDLE,
                    "answer");
        CHECK_ERROR(crossinfer_release(bad), CROSSINFER_INVALID_HANDLE, "answer");
    }
    wrong[4] = answer;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        crossinfer_model bad = (crossinfer_model)wrong[i];
        CHECK_ERROR(crossinfer_prompt(bad, "a", NULL, &other), CROSSINFER_INVALID_HANDLE, "model");
        CHECK_ERROR(crossinfer_chat(bad, "[]", NULL, &other), CROSSINFER_INVALID_HANDLE, "model");
        CHECK_ERROR(crossinfer_step(bad, 1, 0, NULL), CROSSINFER_INVALID_HANDLE, "model");
        CHECK_ERROR(crossinfer_destroy(bad), CROSSINFER_INVALID_HANDLE, "model");
    }
}

static void places(crossinfer_answer answer)
{
    crossinfer_stats stats;
    size_t count;
    int32_t tokens[2] = {-1, -1};

    CHECK_ERROR(crossinfer_next(answer, 0, NULL, NULL), CROSSINFER_INVALID_ARGUMENT, "null");
    CHECK_ERROR(crossinfer_get_stats(answer, NULL), CROSSINFER_INVALID_ARGUMENT, "null");
    stats.struct_size = 0;
    CHECK_ERROR(crossinfer_get_stats(answer, &stats), CROSSINFER_INVALID_ARGUMENT, "struct_size");
    CHECK_ERROR(crossinfer_get_tokens(answer, NULL, 3, &count), CROSSINFER_INVALID_ARGUMENT,
                "place");
    CHECK_ERROR(crossinfer_get_tokens(answer, tokens, 1, NULL), CROSSINFER_INVALID_ARGUMENT,
                "place");
    CHECK(crossinfer_get_tokens(answer, tokens, 1, &count) == CROSSINFER_OK);
    CHECK(count == 4 && tokens[0] >= 0 && tokens[1] == -1);

    /* A host that knows a shorter struct gets that much, and nothing behind it is touched. */
    memset(&stats, 0x55, sizeof stats);
    stats.struct_size = offsetof(crossinfer_stats, generated_tokens);
    CHECK(crossinfer_get_stats(answer, &stats) == CROSSINFER_OK);
    CHECK(stats.finish_reason == CROSSINFER_LENGTH && stats.generated_tokens == 0x55555555);
}

static void on_interrupt(int number)
{
    (void)number;
}

static int untouched(const struct sigaction before[3])
{
    const int signals[3] = {SIGINT, SIGPIPE, SIGTERM};
    struct sigaction now;
    for (int i = 0; i < 3; i++) {
        sigaction(signals[i], NULL, &now);
        if (now.sa_handler != before[i].sa_handler)
            return 0;
    }
    return strcmp(setlocale(LC_ALL, NULL), "C") == 0;
}

int main(int argc, char **argv)
{
    struct sigaction before[3];
    crossinfer_model model, gone;
    crossinfer_answer answer;
    crossinfer_stats stats;
    const char *piece;
    size_t count;

    if (argc != 2)
        return 2;
    signal(SIGINT, on_interrupt);
    sigaction(SIGINT, NULL, &before[0]);
    sigaction(SIGPIPE, NULL, &before[1]);
    sigaction(SIGTERM, NULL, &before[2]);
    CHECK(crossinfer_last_error()[0] == '\0');
    CHECK(strcmp(crossinfer_version(), "") != 0);
    CHECK(crossinfer_create(argv[1], "{\"device\": \"cpu\", \"context\": 64}", &model) ==
          CROSSINFER_OK);
    CHECK(crossinfer_last_error()[0] == '\0');
    arguments(argv[1], model);

    CHECK(crossinfer_prompt(model, "Once", "{\"max_tokens\": 4}", &answer) == CROSSINFER_OK);
    stats.struct_size = sizeof stats;
    CHECK(crossinfer_get_stats(answer, &stats) == CROSSINFER_PENDING);
    CHECK(crossinfer_get_tokens(answer, NULL, 0, &count) == CROSSINFER_PENDING);
    handles(model, answer);
    while (crossinfer_next(answer, -1, &piece, NULL) == CROSSINFER_OK)
        ;
    places(answer);
    CHECK(untouched(before)); /* signals and locale are the host's */
    CHECK(crossinfer_release(answer) == CROSSINFER_OK);
    CHECK_ERROR(crossinfer_release(answer), CROSSINFER_INVALID_HANDLE, "released");
    CHECK_ERROR(crossinfer_next(answer, -1, &piece, NULL), CROSSINFER_INVALID_HANDLE, "released");
    gone = model;
    CHECK(crossinfer_destroy(model) == CROSSINFER_OK);
    CHECK_ERROR(crossinfer_destroy(gone), CROSSINFER_INVALID_HANDLE, "released");
    CHECK_ERROR(crossinfer_prompt(gone, "a", NULL, &answer), CROSSINFER_INVALID_HANDLE,
                "released");
    CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    CHECK(untouched(before));
    CHECK_ERROR(crossinfer_create(argv[1], NULL, &model), CROSSINFER_SHUT_DOWN, "shutdown");
    CHECK_ERROR(crossinfer_start(NULL), CROSSINFER_SHUT_DOWN, "shutdown");
    CHECK_ERROR(crossinfer_release(answer), CROSSINFER_SHUT_DOWN, "shutdown");
    CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    return failures;
}
