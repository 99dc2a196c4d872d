"""The device as callers see it, and the checks that all backends share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceError, DeviceLost, InvalidUse, OutOfDeviceMemory
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.shapes import align_up
from crossinfer.formats.blocks import StorageType
from crossinfer.formats.tensors import release_pages
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Buffer, Role, View, check_shape
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data, DeviceHooks, raw_bytes
from crossinfer.hal.host_memory import HostCopy, HostMemory, check_copy
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.loading import Loader
from crossinfer.hal.recording import Command, Recorder, Recording, check_submission
from crossinfer.hal.submissions import Submissions
from crossinfer.hal.timer import Timer


class Device(DeviceHooks):
    """One device and its queue: what callers use, and the checks of every call."""

    def __init__(self, info: DeviceInfo, *, deadline_s: float = 60.0) -> None:
        self.info = info
        self.deadline_s = deadline_s
        self.memory_in_use = 0
        self._lost: DeviceLost | None = None
        self._closed = False
        self._in_flight = Submissions()
        self._buffers: set[Buffer] = set()
        self._frees = 0
        self._lock = threading.RLock()

    def alloc(
        self,
        shape: Sequence[int],
        dtype: StorageType,
        role: Role = Role.PLAIN,
        label: str = "",
    ) -> Buffer:
        """New memory for a tensor; its contents are undefined.

        Raises OutOfDeviceMemory, DeviceLost, InvalidUse.
        """
        self.check_usable()
        check_shape(shape, dtype, label)
        size = align_up(self.packed_size(shape, dtype, role), VIEW_ALIGNMENT)
        with self._lock:
            limit = self.info.memory_bytes
            if limit is not None and self.memory_in_use + size > limit:
                raise OutOfDeviceMemory(
                    f"Device {self.info.name} cannot allocate {size} bytes for "
                    f"{label or 'a buffer'}: {self.memory_in_use} of its {limit} bytes are in use. "
                    "Use a smaller context or a smaller model, or free buffers."
                )
            handle = self._alloc_tensor(size, shape, dtype, role)
            buffer = Buffer(self, size, label, handle)
            self.memory_in_use += size
            self._buffers.add(buffer)
        return buffer

    def pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role, target: Array
    ) -> None:
        """Write a tensor as `upload` would keep it to the start of `target`, uint8 of the host.

        Raises InvalidUse.
        """
        offset = 0
        for chunk in self._pack(data, shape, dtype, role):
            part = np.frombuffer(raw_bytes(chunk), np.uint8)
            target[offset : offset + part.size] = part
            offset += part.size
        release_pages(data)

    def upload(
        self,
        data: Data,
        shape: Sequence[int],
        dtype: StorageType,
        role: Role = Role.PLAIN,
        label: str = "",
        progress: Progress = no_progress,
    ) -> Buffer:
        """A new buffer that holds a dense row-major tensor of `data`, packed for this device.

        Works in chunks, so that a mapped file is never copied whole, and lets go of its pages in
        the end. `progress` counts bytes.
        Raises OutOfDeviceMemory, DeviceLost, InvalidUse.
        """
        self.check_upload(data, shape, dtype, label)
        total = self.packed_size(shape, dtype, role)
        buffer = self.alloc(shape, dtype, role, label)
        try:
            offset = 0
            for chunk in self._pack(data, shape, dtype, role):
                size = raw_bytes(chunk).nbytes
                self._write(View(buffer, offset, size), chunk)
                offset += size
                progress(label, offset, total)
        except BaseException:
            self.free(buffer)
            raise
        release_pages(data)
        return buffer

    def loader(self) -> Loader:
        """What brings many tensors here: with it, they may come faster than one by one.

        Raises OutOfDeviceMemory, DeviceLost, InvalidUse.
        """
        self.check_usable()
        return Loader(self)

    def write(self, view: View, data: Data) -> None:
        """Replace the start of `view` by `data`, after everything that was submitted before.

        Raises DeviceLost, InvalidUse.
        """
        self.check_usable()
        self.check_buffer(view.buffer)
        size = raw_bytes(data).nbytes
        if size > view.size:
            raise InvalidUse(
                f"{size} bytes were to be written to a view of {view.size} bytes of {view.buffer}."
            )
        self.wait_idle()
        self._write(view, data)

    def download(self, source: Buffer | View) -> bytes:
        """The bytes of a buffer or view, after everything that was submitted before.

        Raises DeviceLost, InvalidUse.
        """
        self.check_usable()
        view = source.view() if isinstance(source, Buffer) else source
        self.check_buffer(view.buffer)
        self.wait_idle()
        return self._read(view)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back. Raises InvalidUse if it is in flight or not ours."""
        with self._lock:
            if buffer.device is self and (self._closed or self._lost):
                buffer.freed = True  # the memory went with the device
                return
            self.check_buffer(buffer)
            if self._in_flight.uses(buffer):
                raise InvalidUse(f"{buffer} is used by a recording in flight; wait for its fence.")
            buffer.freed = True
            self._frees += 1
            self._buffers.discard(buffer)
            self.memory_in_use -= buffer.size_in_bytes
            self._free(buffer)

    def recorder(self, parameters: Buffer | None = None) -> Recorder:
        """A new recorder; `submit` will fill `parameters`. Raises DeviceLost, InvalidUse."""
        self.check_usable()
        if parameters is not None:
            self.check_buffer(parameters)
        return Recorder(self, parameters)

    def encode(
        self,
        commands: tuple[Command, ...],
        parameters: Buffer | None,
        results: tuple[View, ...] = (),
    ) -> Recording:
        """Called by `Recorder.finish`."""
        self.check_usable()
        recording = Recording(self, commands, parameters, results)
        for buffer in recording.buffers:
            self.check_buffer(buffer)  # one may have been freed since its command
        recording.handle = self._encode(commands, parameters)
        if results:
            self._add_results(recording.handle, results)
        return recording

    def read_result(self, recording: Recording, number: int) -> bytes:
        """See `Recording.read_result`."""
        self.check_usable()
        if recording.fence is None or not recording.fence.done:
            raise InvalidUse("The recording has not run yet; wait for its fence.")
        if number not in range(len(recording.results)):
            raise InvalidUse(
                f"The recording has {len(recording.results)} results, none of number {number}."
            )
        return self._read_result(recording, number)

    def submit(self, recording: Recording, params: bytes = b"") -> Fence:
        """Copy `params` to the start of the recording's parameter buffer, then run it.

        Returns at once. Raises DeviceLost, OutOfDeviceMemory, InvalidUse.
        """
        self.check_usable()
        check_submission(recording, params, self)
        if recording.frees_seen != self._frees:
            for buffer in recording.buffers:
                self.check_buffer(buffer)
            recording.frees_seen = self._frees
        fence = self._make_fence(recording)
        with self._lock:
            self._in_flight.add(recording, fence)
        try:
            self._submit(recording, params, fence)
        except DeviceError as error:
            fence.signal(error)
            raise
        except BaseException as error:
            # Nobody knows how much of it was handed over, so nothing would ever end the fence.
            self.lose(f"a submission was cut short ({type(error).__name__})")
            raise
        return fence

    def host_memory(self, size: int, label: str = "") -> HostMemory:
        """`size` bytes of the host for `copy_in`. Raises OutOfDeviceMemory, DeviceLost."""
        self.check_usable()
        data, handle = self._host_memory(size)
        return HostMemory(self, data, handle, label)

    def free_host_memory(self, memory: HostMemory) -> None:
        """See `HostMemory.free`."""
        if self._in_flight.reads(memory):
            raise InvalidUse(f"A copy out of {memory} runs; wait for its fence.")
        if not (memory.freed or self._closed):
            self._free_host_memory(memory)
        memory.freed = True

    def copy_in(self, source: HostMemory, target: View) -> Fence:
        """Start copying the start of `source` over `target`; returns at once, if the device can.

        The copy runs beside the queue, in no order with it: the caller has waited for whatever uses
        the target, and waits for the fence before it submits what does. Raises DeviceLost,
        OutOfDeviceMemory, InvalidUse.
        """
        self.check_usable()
        check_copy(source, target, self)
        if self._in_flight.recordings_use(target.buffer):
            raise InvalidUse(f"{target.buffer} is used by a recording in flight.")
        copy = HostCopy(source, target)
        fence = self._copy_in(source, target)
        if fence is None:
            fence = Fence(self)
            fence.signal()
        with self._lock:
            self._in_flight.add_copy(copy, fence)
        return fence

    def timer(self, capacity: int) -> Timer:
        """A timer with `capacity` entries. Raises DeviceLost, InvalidUse."""
        self.check_usable()
        if capacity < 1:
            raise InvalidUse(f"A timer of {capacity} entries was asked for; it needs at least 1.")
        return Timer(self, capacity, self._make_timer(capacity))

    def read_timer(self, timer: Timer) -> list[float | None]:
        """See `Timer.read`."""
        self.check_usable()
        self.wait_idle()
        return self._read_timer(timer)

    def export_kv_block(
        self, cache: Buffer, shape: Sequence[int], dtype: DType, block: int
    ) -> Array:
        """Block `block` of a KV cache of `shape`, as float32 in the canonical order.

        [K, V][kv_head][slot][head_dim]. Raises DeviceLost, InvalidUse.
        """
        self.check_usable()
        _check_block(shape, block)
        raw = self.download(self._kv_block_view(cache, shape, dtype, block))
        return self._kv_block_values(raw, shape, dtype)

    def import_kv_block(
        self, cache: Buffer, shape: Sequence[int], dtype: DType, block: int, values: Array
    ) -> None:
        """Write `values`, float32 in the canonical order, to a block. Raises as the export."""
        self.check_usable()
        _check_block(shape, block)
        if values.shape != tuple(shape[1:]):
            raise InvalidUse(f"A KV block has the shape {tuple(shape[1:])}, not {values.shape}.")
        view = self._kv_block_view(cache, shape, dtype, block)
        self.write(view, self._kv_block_bytes(values, dtype))

    def wait_idle(self) -> None:
        """Wait for everything that was submitted, but not for copies. Raises DeviceLost.

        Whoever holds a fence hears from it what else went wrong.
        """
        self._in_flight.wait_for_recordings()
        if self._lost is not None:
            raise self._lost

    def lose(self, reason: str) -> DeviceLost:
        """Mark the device as lost; everything in flight fails with the error that is returned."""
        with self._lock:
            if self._lost is None:
                runs = self._in_flight.runs()
                names = tuple(dict.fromkeys(run.kernel for run in runs))
                self._lost = DeviceLost(self.info.name, reason, names, runs)
            self._in_flight.fail(self._lost)
            return self._lost

    def close(self) -> None:
        """Wait for the queue, then release everything. Closing twice is harmless."""
        if self._closed:
            return
        with contextlib.suppress(DeviceLost):
            self.wait_idle()
            self._in_flight.wait_for_copies()
        self._closed = True
        self._close()
        for buffer in self._buffers:
            buffer.freed = True
        self._buffers.clear()
        self.memory_in_use = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def lost(self) -> DeviceLost | None:
        """Why the device is lost, if it is."""
        return self._lost

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is about to be."""
        return self._closed

    # Checks.

    def check_usable(self) -> None:
        """Raises the loss if the device is lost, InvalidUse if it is closed."""
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise InvalidUse(f"Device {self.info.name} is closed.")

    def check_upload(
        self, data: Data, shape: Sequence[int], dtype: StorageType, label: str
    ) -> None:
        """Raises InvalidUse unless `data` is a tensor as it is said to be; see `check_usable`."""
        self.check_usable()
        check_shape(shape, dtype, label)
        given, expected = raw_bytes(data).nbytes, dtype.bytes_for(shape)
        if given != expected:
            raise InvalidUse(
                f"{label or 'A tensor'} of {dtype.label} {tuple(shape)} takes {expected} bytes, "
                f"but {given} were given."
            )

    def check_buffer(self, buffer: Buffer) -> None:
        """Raises InvalidUse unless `buffer` is a live buffer of this device."""
        if buffer.device is not self:
            raise InvalidUse(f"{buffer} belongs to device {buffer.device.info.name}.")
        if buffer.freed:
            raise InvalidUse(f"{buffer} was freed.")

    def _make_fence(self, recording: Recording) -> Fence:
        """The fence of a submission; backends with completion signals wait on those instead."""
        del recording
        return Fence(self)


def _check_block(shape: Sequence[int], block: int) -> None:
    if block not in range(shape[0]):
        raise InvalidUse(f"The KV cache has blocks 0 to {shape[0] - 1}, not {block}.")
