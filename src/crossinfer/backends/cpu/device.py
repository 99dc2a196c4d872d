"""The CPU as a HAL device: memory of the host, a native queue, generated kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from crossinfer.backends.cpu import kv_layout
from crossinfer.backends.cpu.encode import (
    EncodedRecording,
    ParameterCopy,
    encode_recording,
    memory_of,
    timer_signals,
)
from crossinfer.backends.cpu.fence import CpuFence
from crossinfer.backends.cpu.identity import driver_version, model_name
from crossinfer.backends.cpu.kernels import layout, packing
from crossinfer.backends.cpu.kernels.unpack_narrow import tile_sizes
from crossinfer.backends.cpu.library import kernel_code
from crossinfer.backends.cpu.lowering import lower
from crossinfer.backends.cpu.memory import Slabs, allocate, allocate_sparse
from crossinfer.backends.cpu.queue import NativeQueue, usable_cores
from crossinfer.backends.cpu.signal_pool import SignalPool
from crossinfer.backends.cpu.weight_loader import BATCHES, WeightLoader
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import InvalidUse, OutOfDeviceMemory
from crossinfer.formats.blocks import StorageType
from crossinfer.hal import forks
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Lowering, OpDescription, Operand
from crossinfer.hal.limits import Limits, ReadProbe
from crossinfer.hal.loading import Loader
from crossinfer.hal.recording import Command, Recording
from crossinfer.hal.timer import Timer
from crossinfer.jit.target import Target, host_target, short_float_target

STUCK_S = 5.0
"""How long the end of a lost device waits for a kernel that may never end."""


class CpuDevice(Device):
    """`threads` workers (default: one for each core that the process may use).

    `target` chooses the kernels' instruction set, which must be one of `host_targets()`. Handles
    are uint8 arrays. Raises OutOfDeviceMemory, KernelUnsupported, InvalidUse.
    """

    fusions = frozenset({"gated_linear", "qkv_linear"})
    loads_in_background = True

    def __init__(
        self,
        *,
        threads: int | None = None,
        target: Target | None = None,
        deadline_s: float = 600.0,
    ) -> None:
        if threads is not None and threads < 1:
            raise InvalidUse(f"A CPU device was asked for with {threads} threads; 1 is the least.")
        self.target = target or host_target()
        self._short: Target | None = None
        super().__init__(self.describe(self.target), deadline_s=deadline_s)
        self._pool = SignalPool()
        self._parameter_copies: weakref.WeakKeyDictionary[Recording, ParameterCopy] = (
            weakref.WeakKeyDictionary()
        )
        self._last_fence: Fence | None = None
        self._kept: list[object] = []
        self._weights = Slabs.for_weights()
        self.threads = threads or usable_cores()
        try:
            self._queue = NativeQueue(self.threads, deadline_s=deadline_s)
        except (MemoryError, RuntimeError) as error:
            raise OutOfDeviceMemory(
                f"Device {self.info.name} cannot start {self.threads} threads: {error}."
            ) from error
        forks.watch(self)

    @staticmethod
    def describe(target: Target | None = None) -> DeviceInfo:
        return DeviceInfo(
            name="cpu",
            kind=DeviceKind.CPU,
            description=model_name(),
            driver=driver_version(target or host_target()),
            kernel_code=kernel_code(),
        )

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return lower(op, operands, self.target, self._short)

    def allow_rounding(self) -> None:
        self._short = short_float_target(self.target)

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        if role is Role.WEIGHT:
            return layout.packed_size(shape, dtype)
        return super().packed_size(shape, dtype, role)

    def bytes_read(self, weight: Buffer, shape: Sequence[int], dtype: StorageType) -> int:
        if layout.has_records(dtype):
            return sum(tile_sizes(memory_of(weight), shape, dtype).tolist())
        return super().bytes_read(weight, shape, dtype)

    def loader(self) -> Loader:
        self.check_usable()
        try:
            signals = self._pool.take(BATCHES, initial=0)
        except MemoryError:
            raise self.no_memory_for("loading") from None
        return WeightLoader(self, self._queue, signals)

    def keep(self, memory: object) -> None:
        """Hold what workers of this device, which is lost, may still touch, until they end."""
        self._kept.append(memory)

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        if role is Role.WEIGHT:
            yield from packing.pack(raw_bytes(data), shape, dtype)
        elif role is Role.KV_CACHE and isinstance(dtype, DType):
            yield from kv_layout.pack_cache(raw_bytes(data), shape, dtype)
        else:
            yield from super()._pack(data, shape, dtype, role)

    def _kv_block_values(self, raw: bytes, shape: Sequence[int], dtype: DType) -> Array:
        return kv_layout.block_values(raw, shape, dtype)

    def _kv_block_bytes(self, values: Array, dtype: DType) -> Array:
        return kv_layout.block_bytes(values, dtype)

    def _alloc(self, size: int) -> object:
        return self._allocate(size, allocate)

    def _alloc_tensor(
        self, size: int, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> object:
        del shape, dtype
        match role:
            case Role.WEIGHT:
                return self._allocate(size, self._weights.allocate)
            case Role.KV_CACHE:
                return self._allocate(size, allocate_sparse)
            case Role.PLAIN:
                return self._allocate(size, allocate)

    def _allocate(self, size: int, allocate_from: Callable[[int], Array]) -> Array:
        try:
            return allocate_from(size)
        except MemoryError:
            raise OutOfDeviceMemory(
                f"Device {self.info.name} cannot allocate {size} bytes: the host has no such "
                f"memory left, and {self.memory_in_use} bytes are in use already."
            ) from None

    def _free(self, buffer: Buffer) -> None:
        buffer.handle = None
        if not self._buffers:
            self._weights = Slabs.for_weights()  # the last mapping goes, too

    def _write(self, view: View, data: Data) -> None:
        raw = np.frombuffer(raw_bytes(data), dtype=np.uint8)
        memory_of(view.buffer)[view.offset : view.offset + raw.size] = raw

    def _read(self, view: View) -> bytes:
        return memory_of(view.buffer)[view.offset : view.end].tobytes()

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        del parameters
        try:
            return encode_recording(commands, self._pool)
        except MemoryError:
            raise self.no_memory_for("a recording") from None

    def _make_fence(self, recording: Recording) -> Fence:
        signal = _encoded(recording).signal
        signal.signals.store(0, 1)
        return CpuFence(self, self._queue, signal)

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        encoded = _encoded(recording)
        try:
            if params and recording.parameters is not None:
                self._copy_parameters(recording, recording.parameters, params)
            self._queue.submit(encoded.packets)
        except TimeoutError as error:
            raise self.lose(str(error)) from None
        self._last_fence = fence

    def _copy_parameters(self, recording: Recording, buffer: Buffer, params: bytes) -> None:
        """At once if the queue is empty; else by a packet, behind what was submitted before."""
        if self._last_fence is None or self._last_fence.done:
            self._write(buffer.view(), params)
            return
        copy = self._parameter_copies.get(recording)
        if copy is None:
            try:
                copy = self._parameter_copies[recording] = ParameterCopy(buffer)
            except MemoryError:
                raise self.no_memory_for("parameters") from None
        self._queue.submit(copy.packets(params))

    def _make_timer(self, capacity: int) -> object:
        try:
            return self._pool.take(capacity, initial=0)
        except MemoryError:
            raise self.no_memory_for("a timer") from None

    def _read_timer(self, timer: Timer) -> list[float | None]:
        signals = timer_signals(timer).signals
        ends = (signals.times(index)[1] for index in range(timer.capacity))
        return [end * 1e-9 if end else None for end in ends]

    def measure_limits(self) -> Limits | None:
        from crossinfer.backends.cpu.limits import measure_limits  # only benchmarks ask

        return measure_limits(self, self.target, self._short)

    def read_probe(self) -> ReadProbe | None:
        from crossinfer.backends.cpu.limits import CpuReadProbe  # only benchmarks ask

        return CpuReadProbe(self, self.target)

    def _close(self) -> None:
        forks.unwatch(self)
        handles = [buffer.handle for buffer in self._buffers]
        patience_s = None if self._lost is None else STUCK_S
        self._queue.stop(patience_s, (handles, self._in_flight, self._pool, self._kept))
        for buffer in self._buffers:
            buffer.handle = None
        self._weights = Slabs.for_weights()

    def no_memory_for(self, what: str) -> OutOfDeviceMemory:
        """The error to raise where the host has no memory for what a queue needs."""
        return OutOfDeviceMemory(
            f"Device {self.info.name} has no memory for {what}; {self.memory_in_use} bytes are in "
            "use already."
        )


def _encoded(recording: Recording) -> EncodedRecording:
    assert isinstance(recording.handle, EncodedRecording)
    return recording.handle
