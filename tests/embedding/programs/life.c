/* life HOW MODEL: how the process and its Python begin and end. Prints "reached" at the end. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void begin(const char *path, crossinfer_model *model, crossinfer_answer *answer)
{
    const char *piece;
    CHECK(crossinfer_create(path, "{\"device\": \"cpu\"}", model) == CROSSINFER_OK);
    CHECK(crossinfer_prompt(*model, "Once", "{\"max_tokens\": null}", answer) == CROSSINFER_OK);
    CHECK(crossinfer_next(*answer, -1, &piece, NULL) == CROSSINFER_OK);
}

static void *use(void *path)
{
    crossinfer_model model;
    crossinfer_answer answer;
    begin(path, &model, &answer);
    return NULL;
}

static void in_a_fork(crossinfer_model model, crossinfer_answer answer)
{
    const char *piece;
    int status = -1;
    fflush(stdout);
    if (fork() == 0) {
        CHECK_ERROR(crossinfer_next(answer, -1, &piece, NULL), CROSSINFER_INVALID_USE, "forked");
        CHECK_ERROR(crossinfer_destroy(model), CROSSINFER_INVALID_USE, "forked");
        CHECK(crossinfer_shutdown() == CROSSINFER_OK);
        exit(failures);
    }
    wait(&status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(crossinfer_next(answer, -1, &piece, NULL) >= 0);
}

int main(int argc, char **argv)
{
    crossinfer_model model;
    crossinfer_answer answer;
    const char *how, *path;
    pthread_t thread;

    if (argc != 3)
        return 2;
    how = argv[1];
    path = argv[2];
    if (strcmp(how, "start") == 0) { /* the second argument names a Python */
        crossinfer_status status = crossinfer_start(path);
        printf("%d %s\n", (int)status, crossinfer_last_error());
        return 0;
    }
    if (strcmp(how, "thread") == 0) { /* Python starts on a thread that ends before it */
        pthread_create(&thread, NULL, use, (void *)(size_t)path);
        pthread_join(thread, NULL);
        CHECK(crossinfer_shutdown() == CROSSINFER_OK);
    } else if (strcmp(how, "unused") == 0) {
        CHECK(crossinfer_shutdown() == CROSSINFER_OK);
        CHECK(crossinfer_create(path, NULL, &model) == CROSSINFER_SHUT_DOWN);
    } else {
        begin(path, &model, &answer);
        if (strcmp(how, "fork") == 0)
            in_a_fork(model, answer);
        if (strcmp(how, "named late") == 0)
            CHECK_ERROR(crossinfer_start("/usr/bin/python3"), CROSSINFER_INVALID_USE, "already");
        if (strcmp(how, "shutdown") == 0)
            CHECK(crossinfer_shutdown() == CROSSINFER_OK);
        if (strcmp(how, "interrupt") == 0)
            raise(SIGINT); /* ends the process, since this host handles none */
        if (strcmp(how, "exit") == 0) {
            printf("reached\n");
            exit(failures); /* while an answer is being generated */
        }
    }
    printf("reached\n");
    return failures;
}
