/* The Python half: cffi makes these functions, `entries.py` fills them. They never raise. */

int32_t inner_create(const char *model, const char *options, uint64_t *created);
int32_t inner_create_with_d3d12(void *device, void *queue, const char *model, const char *options,
                                uint64_t *created);
int32_t inner_create_with_vulkan(void *instance, void *physical_device, void *device,
                                 uint32_t queue_family, void *queue, void (*lock_queue)(void *),
                                 void (*unlock_queue)(void *), void *user, const char *model,
                                 const char *options, uint64_t *created);
int32_t inner_destroy(uint64_t model);
int32_t inner_prompt(uint64_t model, const char *text, const char *options, uint64_t *started);
int32_t inner_chat(uint64_t model, const char *messages, const char *options, uint64_t *started);
int32_t inner_next(uint64_t answer, int32_t timeout_ms, const char **piece, size_t *length);
int32_t inner_step(uint64_t model, uint32_t max_dispatches, double max_ms, uint32_t *submitted);
int32_t inner_cancel(uint64_t answer);
int32_t inner_stats(uint64_t answer, int32_t *finish_reason, uint32_t *tokens, double *times,
                    uint64_t *bytes);
int32_t inner_tokens(uint64_t answer, int32_t *tokens, size_t capacity, size_t *count);
int32_t inner_release(uint64_t answer);
int32_t inner_close_all(void);
