/* The public functions: each checks its pointers, enters Python, and calls its inner function. */
#include <string.h>

#include "calls.h"
#include "crossinfer.h"
#include "failure.h"
#include "inner.h"

static int32_t invalid(const char *text)
{
    cx_set_error(text);
    return CROSSINFER_INVALID_ARGUMENT;
}

static uint64_t number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* Returns what `call` does, run while Python lives. */
#define WITHIN_PYTHON(call)                                                                        \
    do {                                                                                           \
        int32_t code = cx_enter();                                                                 \
        if (code != CROSSINFER_OK)                                                                 \
            return code;                                                                           \
        code = (call);                                                                             \
        cx_leave();                                                                                \
        return code;                                                                               \
    } while (0)

const char *crossinfer_version(void)
{
    return CROSSINFER_BUILT_VERSION;
}

const char *crossinfer_last_error(void)
{
    return cx_error();
}

crossinfer_status crossinfer_start(const char *python)
{
    return cx_start(python);
}

/* A model that was just made becomes the caller's. */
static int32_t give(int32_t code, const uint64_t *made, crossinfer_model *created)
{
    if (code == CROSSINFER_OK) {
        *created = (crossinfer_model)(uintptr_t)*made;
        cx_destroy_at_exit();
    }
    return code;
}

static int32_t give_answer(int32_t code, const uint64_t *made, crossinfer_answer *started)
{
    if (code == CROSSINFER_OK)
        *started = (crossinfer_answer)(uintptr_t)*made;
    return code;
}

crossinfer_status crossinfer_create(
    const char *model, const char *options, crossinfer_model *created)
{
    uint64_t made = 0;
    if (created == NULL)
        return invalid("crossinfer_create needs a place for the model; `created` is null.");
    *created = NULL;
    WITHIN_PYTHON(give(inner_create(model, options, &made), &made, created));
}

crossinfer_status crossinfer_create_with_device(
    void *device, void *queue, const char *model, const char *options, crossinfer_model *created)
{
    uint64_t made = 0;
    if (created == NULL)
        return invalid("crossinfer_create_with_device needs a place for the model; `created` is "
                       "null.");
    *created = NULL;
    if (device == NULL || queue == NULL)
        return invalid("The Direct3D 12 device or its queue is null; give those of a device that "
                       "is open.");
    WITHIN_PYTHON(
        give(inner_create_with_d3d12(device, queue, model, options, &made), &made, created));
}

crossinfer_status crossinfer_create_with_vulkan(
    const crossinfer_vulkan_device *device, const char *model, const char *options,
    crossinfer_model *created)
{
    uint64_t made = 0;
    if (created == NULL)
        return invalid("crossinfer_create_with_vulkan needs a place for the model; `created` is "
                       "null.");
    *created = NULL;
    if (device == NULL || device->struct_size < sizeof *device)
        return invalid("The Vulkan device is null, or its struct_size is not "
                       "sizeof(crossinfer_vulkan_device).");
    if ((device->lock_queue == NULL) != (device->unlock_queue == NULL))
        return invalid("The Vulkan device has one of lock_queue and unlock_queue; give both or "
                       "none.");
    WITHIN_PYTHON(give(
        inner_create_with_vulkan(device->instance, device->physical_device, device->device,
                                 device->queue_family, device->queue, device->lock_queue,
                                 device->unlock_queue, device->user, model, options, &made),
        &made, created));
}

crossinfer_status crossinfer_destroy(crossinfer_model model)
{
    WITHIN_PYTHON(inner_destroy(number(model)));
}

crossinfer_status crossinfer_prompt(
    crossinfer_model model, const char *text, const char *options, crossinfer_answer *started)
{
    uint64_t made = 0;
    if (started == NULL)
        return invalid("crossinfer_prompt needs a place for the answer; `started` is null.");
    *started = NULL;
    if (text == NULL)
        return invalid("The text of crossinfer_prompt is null.");
    WITHIN_PYTHON(give_answer(inner_prompt(number(model), text, options, &made), &made, started));
}

crossinfer_status crossinfer_chat(
    crossinfer_model model, const char *messages, const char *options, crossinfer_answer *started)
{
    uint64_t made = 0;
    if (started == NULL)
        return invalid("crossinfer_chat needs a place for the answer; `started` is null.");
    *started = NULL;
    if (messages == NULL)
        return invalid("The messages of crossinfer_chat are null.");
    WITHIN_PYTHON(give_answer(inner_chat(number(model), messages, options, &made), &made, started));
}

crossinfer_status crossinfer_next(
    crossinfer_answer answer, int32_t timeout_ms, const char **piece, size_t *length)
{
    size_t unused;
    if (piece == NULL)
        return invalid("crossinfer_next needs a place for the piece; `piece` is null.");
    if (length == NULL)
        length = &unused;
    *piece = NULL;
    *length = 0;
    WITHIN_PYTHON(inner_next(number(answer), timeout_ms, piece, length));
}

crossinfer_status crossinfer_step(
    crossinfer_model model, uint32_t max_dispatches, double max_ms, uint32_t *submitted)
{
    uint32_t unused;
    if (submitted == NULL)
        submitted = &unused;
    *submitted = 0;
    WITHIN_PYTHON(inner_step(number(model), max_dispatches, max_ms, submitted));
}

crossinfer_status crossinfer_cancel(crossinfer_answer answer)
{
    WITHIN_PYTHON(inner_cancel(number(answer)));
}

/* Into the caller's struct as much as it holds; its size stays as it was. */
static int32_t give_stats(uint64_t answer, crossinfer_stats *stats)
{
    crossinfer_stats all;
    uint32_t size = stats->struct_size, tokens[2];
    double times[3];
    uint64_t bytes[3];
    memset(&all, 0, sizeof all);
    int32_t code = inner_stats(answer, &all.finish_reason, tokens, times, bytes);
    if (code != CROSSINFER_OK)
        return code;
    all.struct_size = size;
    all.prompt_tokens = tokens[0];
    all.generated_tokens = tokens[1];
    all.first_token_s = times[0];
    all.prefill_tokens_per_s = times[1];
    all.decode_tokens_per_s = times[2];
    all.weight_bytes = bytes[0];
    all.kv_bytes = bytes[1];
    all.activation_bytes = bytes[2];
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
    return code;
}

crossinfer_status crossinfer_get_stats(crossinfer_answer answer, crossinfer_stats *stats)
{
    if (stats == NULL || stats->struct_size < sizeof stats->struct_size)
        return invalid("The place for the stats is null, or its struct_size is not "
                       "sizeof(crossinfer_stats).");
    WITHIN_PYTHON(give_stats(number(answer), stats));
}

crossinfer_status crossinfer_get_tokens(
    crossinfer_answer answer, int32_t *tokens, size_t capacity, size_t *count)
{
    if (count == NULL || (tokens == NULL && capacity > 0))
        return invalid("crossinfer_get_tokens needs a place for the count, and one for the tokens "
                       "unless `capacity` is 0.");
    *count = 0;
    WITHIN_PYTHON(inner_tokens(number(answer), tokens, capacity, count));
}

crossinfer_status crossinfer_release(crossinfer_answer answer)
{
    WITHIN_PYTHON(inner_release(number(answer)));
}

crossinfer_status crossinfer_shutdown(void)
{
    return cx_shutdown();
}
