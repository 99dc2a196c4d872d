/*
 * crossinfer for hosts that are not Python: games, editors, services.
 *
 *     crossinfer_model model;
 *     crossinfer_answer answer;
 *     const char *piece;
 *     crossinfer_create("model.gguf", "{\"device\": \"auto\"}", &model);
 *     crossinfer_prompt(model, "Once upon a time", "{\"max_tokens\": 50}", &answer);
 *     while (crossinfer_next(answer, -1, &piece, NULL) == CROSSINFER_OK)
 *         fputs(piece, stdout);
 *     crossinfer_release(answer);
 *     crossinfer_destroy(model);
 *     crossinfer_shutdown();
 *
 * Errors. Every function that can fail returns a crossinfer_status; negative ones are errors, and
 * crossinfer_last_error() then has a sentence for people. Nothing else leaves this library: no
 * exception, no signal handler, no abort.
 *
 * Strings are UTF-8 and end with a zero byte. Those given are read during the call only. Those
 * returned belong to the library and to the calling thread: they stay until this thread's next call
 * of a function that returns one in the same way, or crossinfer_shutdown.
 *
 * Handles are numbers that look like pointers; they are never used twice. A handle that is null,
 * released or of another kind gives CROSSINFER_INVALID_HANDLE.
 *
 * Threads. Every function may be called from any thread, also at the same time and with the same
 * handles. What is destroyed while another thread waits for it ends that wait.
 *
 * Options are JSON objects; NULL and "{}" mean the defaults. A name that is unknown, given twice,
 * or of the wrong type is CROSSINFER_INVALID_ARGUMENT, so a host learns when it is too new for a
 * library. The names are those of the Python interface.
 */
#ifndef CROSSINFER_H
#define CROSSINFER_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#  if defined(CROSSINFER_BUILDING)
#    define CROSSINFER_API __declspec(dllexport)
#  else
#    define CROSSINFER_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define CROSSINFER_API __attribute__((visibility("default")))
#else
#  define CROSSINFER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t crossinfer_status;

enum {
    CROSSINFER_OK = 0,
    CROSSINFER_END = 1,     /* the answer is complete */
    CROSSINFER_PENDING = 2, /* not yet: the answer is still being generated */
    CROSSINFER_IDLE = 3,    /* crossinfer_step: nothing is left to compute */

    CROSSINFER_INVALID_ARGUMENT = -1, /* a null pointer, text that is not UTF-8, a bad option */
    CROSSINFER_INVALID_HANDLE = -2,
    CROSSINFER_SHUT_DOWN = -3, /* after crossinfer_shutdown */
    CROSSINFER_PYTHON = -4,    /* Python or its packages cannot be loaded */
    CROSSINFER_FORMAT = -5,    /* the model file cannot be read, or holds what is not supported */
    CROSSINFER_TOKENIZER = -6,
    CROSSINFER_TEMPLATE = -7,
    CROSSINFER_PLAN = -8,     /* no device can run the model as asked */
    CROSSINFER_REQUEST = -9,  /* asks for something impossible, as a prompt beyond the context */
    CROSSINFER_SETTINGS = -10, /* an environment variable CROSSINFER_... has a bad value */
    CROSSINFER_DEVICE = -11,
    CROSSINFER_DEVICE_LOST = -12,
    CROSSINFER_OUT_OF_DEVICE_MEMORY = -13,
    CROSSINFER_UNSUPPORTED = -14, /* the device cannot do this */
    CROSSINFER_INVALID_USE = -15, /* a call that makes no sense in this state */
    CROSSINFER_OUT_OF_MEMORY = -16,
    CROSSINFER_INTERNAL = -17 /* a fault of this library */
};

typedef struct crossinfer_model_tag *crossinfer_model;
typedef struct crossinfer_answer_tag *crossinfer_answer;

/* Why an answer ended. */
enum {
    CROSSINFER_STOPPED = 1,  /* the model ended its turn, or a stop string appeared */
    CROSSINFER_LENGTH = 2,   /* max_tokens were generated, or the context is full */
    CROSSINFER_CANCELLED = 3
};

/* Figures of an answer. Set `struct_size` to sizeof(crossinfer_stats) before the call; a library
 * that is older or newer fills what both know. */
typedef struct crossinfer_stats {
    uint32_t struct_size;
    int32_t finish_reason;
    uint32_t prompt_tokens;
    uint32_t generated_tokens;
    double first_token_s; /* from the request to the first token; 0 if there was none */
    double prefill_tokens_per_s;
    double decode_tokens_per_s;
    uint64_t weight_bytes;
    uint64_t kv_bytes;
    uint64_t activation_bytes;
} crossinfer_stats;

/* A host's Vulkan device. The host keeps all of it alive until the model is destroyed.
 *
 * Queues of Vulkan are not thread-safe. Either the queue is lent to the model alone (the two
 * functions are NULL), or the host gives functions that lock and unlock it and holds that lock for
 * its own submissions too. They are called with `user`, from any thread, around each submission of
 * the model. A host must not call this library while it holds the lock. */
typedef struct crossinfer_vulkan_device {
    uint32_t struct_size; /* sizeof(crossinfer_vulkan_device) */
    uint32_t queue_family;
    void *instance;        /* VkInstance, made with Vulkan 1.1 or later */
    void *physical_device; /* VkPhysicalDevice */
    void *device;          /* VkDevice */
    void *queue;           /* VkQueue of that family, which can compute */
    void (*lock_queue)(void *user);
    void (*unlock_queue)(void *user);
    void *user;
} crossinfer_vulkan_device;

/* The version of this library, as "0.1.0". Needs no Python. */
CROSSINFER_API const char *crossinfer_version(void);

/* What went wrong in this thread's last call that failed; "" if none has. */
CROSSINFER_API const char *crossinfer_last_error(void);

/* Start Python now, with the packages of this Python executable (of a virtual environment, or of an
 * interpreter that the host ships). NULL: what the environment variable CROSSINFER_PYTHON names,
 * else `python` beside this library, else the Python that built it. Calling this is optional: the
 * first call that needs Python starts it so. Where the process runs Python already, that one is
 * used, and `python` must be NULL. */
CROSSINFER_API crossinfer_status crossinfer_start(const char *python);

/* Load a model: a GGUF file, a folder or a name of the Hugging Face Hub; NULL is the demo model.
 * Takes seconds. Options: "device" (a name, or a list of names in order of preference), "context",
 * "threads", "kv_dtype" ("f16" or "f32"), "precision" ("exact" or "fast"), "gpu_layers",
 * "stream_layers", "step_rows" (the most tokens of one step), "sliced" (true: see
 * crossinfer_step). */
CROSSINFER_API crossinfer_status crossinfer_create(
    const char *model, const char *options, crossinfer_model *created);

/* The same on the host's own Direct3D 12 device: `device` is an ID3D12Device *, `queue` an
 * ID3D12CommandQueue * of it (direct or compute). Both are held by a reference until the model is
 * destroyed. "device" in the options names where else the model may be placed. */
CROSSINFER_API crossinfer_status crossinfer_create_with_device(
    void *device, void *queue, const char *model, const char *options, crossinfer_model *created);

/* The same on the host's own Vulkan device. */
CROSSINFER_API crossinfer_status crossinfer_create_with_vulkan(
    const crossinfer_vulkan_device *device, const char *model, const char *options,
    crossinfer_model *created);

/* End the model's answers, wait for the step that runs, and give everything back. Answers stay
 * readable until they are released. */
CROSSINFER_API crossinfer_status crossinfer_destroy(crossinfer_model model);

/* Continue `text` as it stands. Returns at once. Options: "max_tokens" (null: until the context is
 * full), "stop" (a list of strings), "temperature", "top_k", "top_p", "min_p", "repeat_penalty",
 * "presence_penalty", "frequency_penalty", "logit_bias" (token id to number), "seed". */
CROSSINFER_API crossinfer_status crossinfer_prompt(
    crossinfer_model model, const char *text, const char *options, crossinfer_answer *started);

/* Answer a conversation through the model's chat template. `messages` is a JSON list such as
 * [{"role": "user", "content": "Hello"}]; options as above. */
CROSSINFER_API crossinfer_status crossinfer_chat(
    crossinfer_model model, const char *messages, const char *options, crossinfer_answer *started);

/* The next piece of text; never splits a character. Waits for `timeout_ms` at most (0: not at all,
 * negative: as long as it takes). CROSSINFER_OK: there is a piece. CROSSINFER_PENDING: none yet.
 * CROSSINFER_END: there will be none. `piece` is "" for the latter two, and NULL for errors. A piece
 * may hold zero bytes; `length` (may be NULL) gets its bytes without the one that ends it. */
CROSSINFER_API crossinfer_status crossinfer_next(
    crossinfer_answer answer, int32_t timeout_ms, const char **piece, size_t *length);

/* For models made with {"sliced": true}: let the model work for a slice. At most `max_dispatches`
 * kernel runs are handed to the device (0: no such bound), at most `max_ms` milliseconds of work by
 * what has been measured (0: no such bound; a single kernel run cannot be cut). Returns when they
 * are handed over, not when they are done; hands over none while the last slice runs. `submitted`
 * (may be NULL) gets the number of kernel runs. CROSSINFER_OK: call again. CROSSINFER_IDLE: nothing
 * is left to do. Nothing is generated between these calls. */
CROSSINFER_API crossinfer_status crossinfer_step(
    crossinfer_model model, uint32_t max_dispatches, double max_ms, uint32_t *submitted);

/* Ask for no more. The answer ends soon after, with what was generated so far. */
CROSSINFER_API crossinfer_status crossinfer_cancel(crossinfer_answer answer);

/* The figures of an answer that has ended; CROSSINFER_PENDING before that. */
CROSSINFER_API crossinfer_status crossinfer_get_stats(
    crossinfer_answer answer, crossinfer_stats *stats);

/* The generated token ids of an answer that has ended; CROSSINFER_PENDING before that. `count` gets
 * their number, `tokens` (may be NULL if `capacity` is 0) the first `capacity` of them. */
CROSSINFER_API crossinfer_status crossinfer_get_tokens(
    crossinfer_answer answer, int32_t *tokens, size_t capacity, size_t *count);

/* Give an answer back; cancels it if it has not ended. */
CROSSINFER_API crossinfer_status crossinfer_release(crossinfer_answer answer);

/* Destroy every model, end every call that waits, and end Python if this library started it. Later
 * calls return CROSSINFER_SHUT_DOWN: Python packages cannot be loaded twice in a process. A process
 * that ends without this call destroys its models on the way out. */
CROSSINFER_API crossinfer_status crossinfer_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
