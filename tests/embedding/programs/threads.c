/* threads MODEL: one model and many threads; destroying what another thread waits for. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"

#define THREADS 6
#define OPTIONS "{\"device\": \"cpu\", \"context\": 128}"

static const char *path;
static crossinfer_model shared;
static crossinfer_answer endless;
static pthread_barrier_t together;

static void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* Each thread's first call is the process's first call. */
static void *load(void *unused)
{
    crossinfer_model model = NULL;
    (void)unused;
    pthread_barrier_wait(&together);
    CHECK(crossinfer_create(path, OPTIONS, &model) == CROSSINFER_OK);
    return model;
}

static size_t answer_prompt(crossinfer_model model, const char *prompt, int32_t tokens[16])
{
    crossinfer_answer answer;
    const char *piece;
    size_t count = 0;
    CHECK(crossinfer_prompt(model, prompt, "{\"max_tokens\": 16}", &answer) == CROSSINFER_OK);
    while (crossinfer_next(answer, -1, &piece, NULL) == CROSSINFER_OK)
        ;
    CHECK(crossinfer_get_tokens(answer, tokens, 16, &count) == CROSSINFER_OK);
    CHECK(crossinfer_release(answer) == CROSSINFER_OK);
    return count;
}

static void *ask(void *prompt)
{
    int32_t *tokens = calloc(17, sizeof *tokens);
    pthread_barrier_wait(&together);
    tokens[16] = (int32_t)answer_prompt(shared, prompt, tokens);
    /* Errors are this thread's own. */
    CHECK(crossinfer_last_error()[0] == '\0');
    CHECK(crossinfer_destroy(NULL) == CROSSINFER_INVALID_HANDLE);
    CHECK(crossinfer_last_error()[0] != '\0');
    return tokens;
}

/* Reads until the end, or until the handle is gone; both are right. */
static void *wait_for_end(void *unused)
{
    const char *piece;
    crossinfer_status status;
    (void)unused;
    while ((status = crossinfer_next(endless, -1, &piece, NULL)) == CROSSINFER_OK)
        CHECK(piece != NULL);
    CHECK(status == CROSSINFER_END || status == CROSSINFER_INVALID_HANDLE ||
          status == CROSSINFER_SHUT_DOWN);
    return NULL;
}

/* Ends well, or hears of the shutdown, which destroys what it made. */
static void *load_late(void *unused)
{
    crossinfer_model model;
    crossinfer_status status = crossinfer_create(path, OPTIONS, &model);
    (void)unused;
    CHECK(status == CROSSINFER_OK || status == CROSSINFER_SHUT_DOWN);
    CHECK((model == NULL) == (status != CROSSINFER_OK));
    return NULL;
}

static void start_readers(pthread_t readers[3])
{
    CHECK(crossinfer_prompt(shared, "Once upon", "{\"max_tokens\": null, \"seed\": 1}", &endless) ==
          CROSSINFER_OK);
    for (int i = 0; i < 3; i++)
        pthread_create(&readers[i], NULL, wait_for_end, NULL);
    nap(5);
}

static void join(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], readers[3];
    crossinfer_model models[THREADS];
    const char *prompts[] = {"Once upon a time", "The", "x = 1\n", "One two three", "A", "zzz"};
    int32_t alone[THREADS][17];

    if (argc != 2)
        return 2;
    path = argv[1];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, load, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], (void **)&models[i]);
    for (int i = 1; i < THREADS; i++)
        CHECK(crossinfer_destroy(models[i]) == CROSSINFER_OK);
    shared = models[0];

    for (int i = 0; i < THREADS; i++)
        alone[i][16] = (int32_t)answer_prompt(shared, prompts[i], alone[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, ask, (void *)(size_t)prompts[i]);
    for (int i = 0; i < THREADS; i++) {
        int32_t *tokens;
        pthread_join(threads[i], (void **)&tokens);
        CHECK(memcmp(tokens, alone[i], sizeof alone[i]) == 0);
        free(tokens);
    }

    start_readers(readers);
    CHECK(crossinfer_cancel(endless) == CROSSINFER_OK);
    join(readers, 3);
    CHECK(crossinfer_release(endless) == CROSSINFER_OK);

    start_readers(readers);
    CHECK(crossinfer_release(endless) == CROSSINFER_OK);
    join(readers, 3);

    start_readers(readers);
    CHECK(crossinfer_destroy(shared) == CROSSINFER_OK);
    join(readers, 3);
    CHECK(crossinfer_release(endless) == CROSSINFER_OK);

    CHECK(crossinfer_create(path, OPTIONS, &shared) == CROSSINFER_OK);
    start_readers(readers);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, load_late, NULL);
    nap(2);
    CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    join(readers, 3);
    join(threads, 2);
    return failures;
}
