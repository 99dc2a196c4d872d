"""The hardware abstraction layer: buffers, recordings, queues, fences, timers.

This page is the contract between callers (the engine, tests) and backends.

**Who validates.** `Device`, `Recorder` and `Executor` check every call and raise `InvalidUse`, so
a backend's hooks (the methods that start with an underscore) see only valid arguments: buffers of
this device that are not freed, views in range, at most 14 bindings and 128 bytes of constants, a
grid of sizes from 1 to 2³² - 1, a recording that is not in flight. Views of commands start at
multiples of 256 bytes; those of writes and downloads start anywhere.

**Errors.** A device raises `DeviceLost`, `OutOfDeviceMemory`, `KernelUnsupported`, `InvalidUse`,
and nothing else. `DeviceLost` carries the API's reason and the runs in flight. After a loss
every call but `close` and `free` raises `DeviceLost`, so that a loss is never taken for something
else. What goes wrong in a submission is raised by its fence; other calls report only the loss. A
`submit` that any other exception cuts short loses the device, since its state is unknown.

**Kernels.** A name means one kernel of a device: faults, verdicts and timelines go by it. Where the
driver makes something else of it for each shape, `Kernel.per_shape` says so. `DeviceInfo.driver`
and `kernel_code` change whenever a kernel may come out otherwise.

**Order.** Commands of one recording may run at the same time, except where the recorder put a
barrier: a barrier before a command means that every earlier command of the recording has finished
and its writes can be seen. The hazard tracker decides where; a backend translates each barrier and
adds none of its own for memory that the recording names. Recordings submitted to one device run one
after the other, each as if a barrier stood before it. `submit` copies `params` into the recording's
parameter buffer in that same order. `write` and `download` wait for everything submitted before.

**Copies from the host.** `copy_in` copies `HostMemory` to a view beside the queue, in no order with
what is submitted: the caller waits for what uses the view before, and for the copy's fence before
it submits what uses it after. `download` and `write` don't wait for such copies; `close` does.

**Loading.** What a `loader` brings is there when it is left; until then the device may read the
data given, and nothing else touches the buffers. A loader belongs to one thread; only `stop` may be
called from any. Where the device `loads_in_background`, other threads record and submit meanwhile.

**Recordings** are immutable and refer to buffers, not to contents; replaying one costs no
recording. A recording may be in flight once. A buffer may not be freed while a recording in flight
refers to it.

**Views.** A dispatch sees its buffers through views with a declared access. Two views of one
dispatch may overlap only if both are read; memory that is read and written is one READ_WRITE view.

**Layouts.** Activations and tables (`Role.PLAIN`) are dense and row-major. Weights and KV cache
blocks may be kept in a layout of the backend's own: `packed_size` tells its size and `upload`
packs. `export_kv_block` and `import_kv_block` speak the canonical order
[K, V][kv_head][slot][head_dim]. New memory may hold NaN: a kernel lets no byte that nobody wrote
reach a result that somebody reads, not even multiplied by zero.

**Time.** A timestamp drains: commands before it have finished, commands after it have not started.

**Threads.** `alloc`, `upload`, `write` and `download` may be called from any thread; one thread at
a time records and submits. Recorders belong to one thread.

**Close.** A closed device has released everything that it created and nothing that it was given,
but for what a kernel that never ends may still touch: `close` of a lost device doesn't wait for it.
"""
