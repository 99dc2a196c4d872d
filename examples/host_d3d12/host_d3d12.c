/*
 * A host that owns its Direct3D 12 device, as a game does. It lends device and queue to crossinfer,
 * lets a model answer in slices between its own work on the same queue, and goes on with its device
 * when the model is gone. It fails unless its own results are right and its device and queue have
 * as many references as before.
 *
 *     cc host_d3d12.c -I LIB -L LIB -lcrossinfer -ldl -Wl,-rpath,LIB -o host_d3d12
 *     ./host_d3d12 model.gguf "Once upon a time"
 *
 * (LIB: the folder that `make libcrossinfer` fills.) On Windows it uses the system's Direct3D 12, on
 * Linux libvkd3d.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crossinfer.h"
#include "d3d12_c.h"

#define BYTES 65536
#define MAX_DISPATCHES 16
#define MAX_MS 4.0

/* What the host has made for itself. */
static struct {
    ID3D12Device *device;
    ID3D12CommandQueue *queue;
    ID3D12CommandAllocator *allocator;
    ID3D12GraphicsCommandList *list;
    ID3D12Resource *upload, *memory, *readback;
    ID3D12Fence *fence;
    UINT64 submitted;
} host;

static void check(HRESULT result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s failed: %08x\n", what, (unsigned)result);
        exit(1);
    }
}

static void check_model(crossinfer_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s failed: %s\n", what, crossinfer_last_error());
        exit(1);
    }
}

static ID3D12Resource *make_buffer(D3D12_HEAP_TYPE heap, D3D12_RESOURCE_STATES state)
{
    D3D12_HEAP_PROPERTIES properties;
    D3D12_RESOURCE_DESC description;
    void *made = NULL;

    memset(&properties, 0, sizeof properties);
    memset(&description, 0, sizeof description);
    properties.Type = heap;
    properties.CreationNodeMask = properties.VisibleNodeMask = 1;
    description.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER;
    description.Width = BYTES;
    description.Height = description.DepthOrArraySize = description.MipLevels = 1;
    description.SampleDesc.Count = 1;
    description.Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR;
    check(host.device->lpVtbl->CreateCommittedResource(host.device, &properties, 0, &description,
                                                       state, NULL, &IID_ID3D12Resource, &made),
          "CreateCommittedResource");
    return made;
}

static void open_device(void)
{
    D3D12_COMMAND_QUEUE_DESC description;
    void *library = load_d3d12();
    CreateDevice create = NULL;

    if (library != NULL)
        *(void **)&create = find_function(library, "D3D12CreateDevice");
    if (create == NULL) {
        fprintf(stderr, "There is no Direct3D 12 here (on Linux: libvkd3d-utils.so.1).\n");
        exit(77);
    }
    check(create(NULL, D3D_FEATURE_LEVEL_11_0, &IID_ID3D12Device, (void **)&host.device),
          "D3D12CreateDevice");
    memset(&description, 0, sizeof description);
    description.Type = D3D12_COMMAND_LIST_TYPE_DIRECT;
    check(host.device->lpVtbl->CreateCommandQueue(host.device, &description,
                                                  &IID_ID3D12CommandQueue, (void **)&host.queue),
          "CreateCommandQueue");
    check(host.device->lpVtbl->CreateCommandAllocator(host.device, D3D12_COMMAND_LIST_TYPE_DIRECT,
                                                      &IID_ID3D12CommandAllocator,
                                                      (void **)&host.allocator),
          "CreateCommandAllocator");
    check(host.device->lpVtbl->CreateCommandList(
              host.device, 0, D3D12_COMMAND_LIST_TYPE_DIRECT, host.allocator, NULL,
              &IID_ID3D12GraphicsCommandList, (void **)&host.list),
          "CreateCommandList");
    check(host.list->lpVtbl->Close(host.list), "Close");
    check(host.device->lpVtbl->CreateFence(host.device, 0, 0, &IID_ID3D12Fence,
                                           (void **)&host.fence),
          "CreateFence");
    host.upload = make_buffer(D3D12_HEAP_TYPE_UPLOAD, D3D12_RESOURCE_STATE_GENERIC_READ);
    host.memory = make_buffer(D3D12_HEAP_TYPE_DEFAULT, D3D12_RESOURCE_STATE_COMMON);
    host.readback = make_buffer(D3D12_HEAP_TYPE_READBACK, D3D12_RESOURCE_STATE_COPY_DEST);
}

/* Copy a whole buffer on the host's queue and wait for it, by the host's own fence. */
static void copy(ID3D12Resource *target, ID3D12Resource *source)
{
    ID3D12CommandList *lists[1];

    check(host.allocator->lpVtbl->Reset(host.allocator), "Reset of the allocator");
    check(host.list->lpVtbl->Reset(host.list, host.allocator, NULL), "Reset of the list");
    host.list->lpVtbl->CopyBufferRegion(host.list, target, 0, source, 0, BYTES);
    check(host.list->lpVtbl->Close(host.list), "Close");
    lists[0] = (ID3D12CommandList *)host.list;
    host.queue->lpVtbl->ExecuteCommandLists(host.queue, 1, lists);
    check(host.queue->lpVtbl->Signal(host.queue, host.fence, ++host.submitted), "Signal");
    while (host.fence->lpVtbl->GetCompletedValue(host.fence) < host.submitted)
        sleep_ms(1);
}

/* The host's own work of one frame: bytes to the GPU and back, which must come back as they went. */
static void draw_frame(unsigned frame)
{
    unsigned char *bytes, sent[BYTES];
    unsigned i;
    int intact;

    for (i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + frame * 7 + (i >> 8));
    check(host.upload->lpVtbl->Map(host.upload, 0, NULL, (void **)&bytes), "Map");
    memcpy(bytes, sent, BYTES);
    host.upload->lpVtbl->Unmap(host.upload, 0, NULL);
    copy(host.memory, host.upload); /* buffers decay to COMMON after each execution, */
    copy(host.readback, host.memory); /* so neither copy needs a barrier */
    check(host.readback->lpVtbl->Map(host.readback, 0, NULL, (void **)&bytes), "Map");
    intact = memcmp(bytes, sent, BYTES) == 0;
    host.readback->lpVtbl->Unmap(host.readback, 0, NULL);
    if (!intact) {
        fprintf(stderr, "The host's bytes of frame %u did not come back.\n", frame);
        exit(1);
    }
}

/* As in a game's loop: draw, let the model work for a slice, show what it said. */
static unsigned answer(crossinfer_model model, const char *prompt)
{
    crossinfer_answer answer;
    crossinfer_status status;
    const char *piece;
    uint32_t dispatches;
    unsigned frame = 0;

    check_model(crossinfer_prompt(model, prompt, "{\"max_tokens\": 8}", &answer), "The prompt");
    do {
        if (frame++ % 16 == 0)
            draw_frame(frame);
        check_model(crossinfer_step(model, MAX_DISPATCHES, MAX_MS, &dispatches), "A slice");
        if (dispatches > MAX_DISPATCHES)
            check_model(CROSSINFER_INTERNAL, "The bound of a slice");
        if (dispatches == 0)
            sleep_ms(1); /* the last slice still runs; a game would draw its next frame */
        status = crossinfer_next(answer, 0, &piece, NULL);
        check_model(status, "The answer");
        fputs(piece, stdout);
    } while (status != CROSSINFER_END);
    printf("\n");
    check_model(crossinfer_release(answer), "The release");
    return frame;
}

#define REFERENCES(object)                                                                         \
    ((object)->lpVtbl->AddRef(object), (unsigned)(object)->lpVtbl->Release(object))
#define RELEASE(object) ((object)->lpVtbl->Release(object))

int main(int argc, char **argv)
{
    crossinfer_model model;
    unsigned device_references, queue_references, frames;

    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    open_device();
    draw_frame(0);
    device_references = REFERENCES(host.device);
    queue_references = REFERENCES(host.queue);

    check_model(crossinfer_create_with_device(host.device, host.queue, argv[1],
                                              "{\"sliced\": true, \"context\": 64}", &model),
                "Loading the model");
    frames = answer(model, argv[2]);
    check_model(crossinfer_destroy(model), "Destroying the model");

    draw_frame(frames + 1);
    if (REFERENCES(host.device) != device_references ||
        REFERENCES(host.queue) != queue_references) {
        fprintf(stderr, "The device had %u references and has %u, the queue had %u and has %u.\n",
                device_references, REFERENCES(host.device), queue_references,
                REFERENCES(host.queue));
        return 1;
    }
    check_model(crossinfer_shutdown(), "The shutdown");
    draw_frame(frames + 2);
    fprintf(stderr, "%u frames; the host's device works on, with %u references\n", frames,
            device_references);

    RELEASE(host.fence);
    RELEASE(host.readback);
    RELEASE(host.memory);
    RELEASE(host.upload);
    RELEASE(host.list);
    RELEASE(host.allocator);
    RELEASE(host.queue);
    if (RELEASE(host.device) != 0) {
        fprintf(stderr, "Something still holds the device.\n");
        return 1;
    }
    return 0;
}
