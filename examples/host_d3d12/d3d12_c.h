/*
 * The part of Direct3D 12 that host_d3d12.c uses, for systems without d3d12.h: names, slots and
 * numbers are those of that header. On Linux, libvkd3d keeps Windows' calling convention.
 */
#ifndef D3D12_C_H
#define D3D12_C_H

#ifdef _WIN32

#  define COBJMACROS
#  define INITGUID
#  include <d3d12.h>
#  define load_d3d12() LoadLibraryA("d3d12.dll")
#  define find_function(library, name) ((void *)GetProcAddress(library, name))
#  define sleep_ms(ms) Sleep(ms)

#else

#  include <dlfcn.h>
#  include <stddef.h>
#  include <stdint.h>
#  include <time.h>

#  define load_d3d12() dlopen("libvkd3d-utils.so.1", RTLD_NOW)
#  define find_function(library, name) dlsym(library, name)

static void sleep_ms(int ms)
{
    struct timespec time = {0, ms * 1000000L};
    nanosleep(&time, NULL);
}

#  ifdef __x86_64__
#    define WINAPI __attribute__((ms_abi))
#  else
#    define WINAPI
#  endif

typedef int32_t HRESULT;
typedef uint32_t UINT, ULONG;
typedef uint64_t UINT64;
typedef struct {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
} GUID;

static const GUID IID_ID3D12Device = {
    0x189819f1, 0x1db6, 0x4b57, {0xbe, 0x54, 0x18, 0x21, 0x33, 0x9b, 0x85, 0xf7}};
static const GUID IID_ID3D12CommandQueue = {
    0x0ec870a6, 0x5d7e, 0x4c22, {0x8c, 0xfc, 0x5b, 0xaa, 0xe0, 0x76, 0x16, 0xed}};
static const GUID IID_ID3D12CommandAllocator = {
    0x6102dee4, 0xaf59, 0x4b09, {0xb9, 0x99, 0xb4, 0x4d, 0x73, 0xf0, 0x9b, 0x24}};
static const GUID IID_ID3D12GraphicsCommandList = {
    0x5b160d0f, 0xac1b, 0x4185, {0x8b, 0xa8, 0xb3, 0xae, 0x42, 0xa5, 0xa4, 0x55}};
static const GUID IID_ID3D12Resource = {
    0x696442be, 0xa72e, 0x4059, {0xbc, 0x79, 0x5b, 0x5c, 0x98, 0x04, 0x0f, 0xad}};
static const GUID IID_ID3D12Fence = {
    0x0a753dcf, 0xc4d8, 0x4b91, {0xad, 0xf6, 0xbe, 0x5a, 0x60, 0xd9, 0x5a, 0x76}};

#  define D3D_FEATURE_LEVEL_11_0 0xb000
#  define D3D12_COMMAND_LIST_TYPE_DIRECT 0
#  define D3D12_HEAP_TYPE_DEFAULT 1
#  define D3D12_HEAP_TYPE_UPLOAD 2
#  define D3D12_HEAP_TYPE_READBACK 3
#  define D3D12_RESOURCE_STATE_COMMON 0
#  define D3D12_RESOURCE_STATE_COPY_DEST 0x400
#  define D3D12_RESOURCE_STATE_GENERIC_READ 0xac3
#  define D3D12_RESOURCE_DIMENSION_BUFFER 1
#  define D3D12_TEXTURE_LAYOUT_ROW_MAJOR 1

typedef int D3D12_HEAP_TYPE, D3D12_RESOURCE_STATES;
typedef struct {
    int Type, Priority, Flags;
    UINT NodeMask;
} D3D12_COMMAND_QUEUE_DESC;
typedef struct {
    int Type, CPUPageProperty, MemoryPoolPreference;
    UINT CreationNodeMask, VisibleNodeMask;
} D3D12_HEAP_PROPERTIES;
typedef struct {
    int Dimension;
    UINT64 Alignment, Width;
    UINT Height;
    uint16_t DepthOrArraySize, MipLevels;
    int Format;
    struct {
        UINT Count, Quality;
    } SampleDesc;
    int Layout, Flags;
} D3D12_RESOURCE_DESC;

/* An object begins with a pointer to the table of its methods; `slots` says which ones come. */
#  define UNUSED(from, to) void *unused_##from[(to) - (from) + 1]
#  define INTERFACE(name, methods)                                                                 \
      typedef struct name name;                                                                    \
      struct name {                                                                                \
          const struct name##Vtbl {                                                                \
              UNUSED(0, 0);                                                                        \
              ULONG(WINAPI *AddRef)(name *);                                                       \
              ULONG(WINAPI *Release)(name *);                                                      \
              methods                                                                              \
          } *lpVtbl;                                                                               \
      }

INTERFACE(ID3D12CommandList, );
INTERFACE(ID3D12CommandAllocator, UNUSED(3, 7); HRESULT(WINAPI *Reset)(ID3D12CommandAllocator *););
INTERFACE(ID3D12Resource, UNUSED(3, 7);
          HRESULT(WINAPI *Map)(ID3D12Resource *, UINT, const void *, void **);
          void(WINAPI *Unmap)(ID3D12Resource *, UINT, const void *););
INTERFACE(ID3D12Fence, UNUSED(3, 7); UINT64(WINAPI *GetCompletedValue)(ID3D12Fence *););
INTERFACE(ID3D12GraphicsCommandList, UNUSED(3, 8);
          HRESULT(WINAPI *Close)(ID3D12GraphicsCommandList *);
          HRESULT(WINAPI *Reset)(ID3D12GraphicsCommandList *, ID3D12CommandAllocator *, void *);
          UNUSED(11, 14);
          void(WINAPI *CopyBufferRegion)(ID3D12GraphicsCommandList *, ID3D12Resource *, UINT64,
                                         ID3D12Resource *, UINT64, UINT64););
INTERFACE(ID3D12CommandQueue, UNUSED(3, 9);
          void(WINAPI *ExecuteCommandLists)(ID3D12CommandQueue *, UINT, ID3D12CommandList **);
          UNUSED(11, 13); HRESULT(WINAPI *Signal)(ID3D12CommandQueue *, ID3D12Fence *, UINT64););
INTERFACE(
    ID3D12Device, UNUSED(3, 7);
    HRESULT(WINAPI *CreateCommandQueue)(ID3D12Device *, const D3D12_COMMAND_QUEUE_DESC *,
                                        const GUID *, void **);
    HRESULT(WINAPI *CreateCommandAllocator)(ID3D12Device *, int, const GUID *, void **);
    UNUSED(10, 11);
    HRESULT(WINAPI *CreateCommandList)(ID3D12Device *, UINT, int, ID3D12CommandAllocator *, void *,
                                       const GUID *, void **);
    UNUSED(13, 26);
    HRESULT(WINAPI *CreateCommittedResource)(ID3D12Device *, const D3D12_HEAP_PROPERTIES *, int,
                                             const D3D12_RESOURCE_DESC *, int, const void *,
                                             const GUID *, void **);
    UNUSED(28, 35);
    HRESULT(WINAPI *CreateFence)(ID3D12Device *, UINT64, int, const GUID *, void **););

#endif

typedef HRESULT(WINAPI *CreateDevice)(void *, int, const GUID *, void **);

#endif
