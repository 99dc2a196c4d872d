"""What a backend fills in: the methods behind `Device`, which has checked their arguments."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.dtypes import Array, DType, decode_scalars, encode_scalars
from crossinfer.core.errors import InvalidUse
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.kernel import Lowering, OpDescription, Operand
from crossinfer.hal.limits import Limits, ReadProbe

if TYPE_CHECKING:
    from crossinfer.hal.fence import Fence
    from crossinfer.hal.host_memory import HostMemory
    from crossinfer.hal.recording import Command, Recording
    from crossinfer.hal.timer import Timer

Data = memoryview | bytes | Array

UPLOAD_CHUNK_BYTES = 16 << 20


def raw_bytes(data: Data) -> memoryview:
    """The bytes of `data`, not copied. Raises InvalidUse unless they lie one after another."""
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    if not view.c_contiguous:
        raise InvalidUse("The data has gaps or is transposed; give a contiguous copy of it.")
    return view.cast("B") if view.nbytes else memoryview(b"")


class DeviceHooks(abc.ABC):
    """One device behind the HAL's checks. See `crossinfer.hal` for what a backend may count on."""

    one_access_per_buffer: bool = False
    """A dispatch that reads a part of a buffer and writes another part costs a copy, so that
    tensors which live at the same time had better have buffers of their own.
    """
    fusions: frozenset[str] = frozenset()
    """The fusion patterns of the plan that pay on this device."""
    loads_in_background: bool = False
    """What a loader brings is packed by the device itself, while other threads of the host go on:
    also those that record and submit.
    """

    @abc.abstractmethod
    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        """The ways to run `op` on operands of these types, best first; empty means "no"."""

    def allow_rounding(self) -> None:  # noqa: B027 - most have nothing to gain by it
        """From now on, `lower` may offer kernels that round 16-bit weights and what these multiply,
        where that is faster (see `Lowering.quantized`).
        """

    def refusal(self, op: OpDescription, operands: Mapping[str, Operand]) -> str:
        """Why `lower` says "no", to end "device X: "; empty: it has no kernel, and that is all."""
        del op, operands
        return ""

    @abc.abstractmethod
    def _alloc(self, size: int) -> object:
        """The handle of `size` bytes of new memory. Raises OutOfDeviceMemory."""

    def _alloc_tensor(
        self, size: int, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> object:
        """The handle of `size` bytes for a tensor, for devices that care what it is."""
        del shape, dtype, role
        return self._alloc(size)

    @abc.abstractmethod
    def _free(self, buffer: Buffer) -> None: ...

    @abc.abstractmethod
    def _write(self, view: View, data: Data) -> None: ...

    @abc.abstractmethod
    def _read(self, view: View) -> bytes: ...

    @abc.abstractmethod
    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        """The handle of a recording of these commands."""

    @abc.abstractmethod
    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        """Copy `params` and run; `signal` the fence when done. May raise the HAL's errors."""

    def _host_memory(self, size: int) -> tuple[Array, object]:
        """Memory for `_copy_in`: uint8 [size] and a handle. Raises OutOfDeviceMemory."""
        return np.empty(size, np.uint8), None

    def _free_host_memory(self, memory: HostMemory) -> None:
        """No copy out of it runs."""
        del memory

    def _copy_in(self, source: HostMemory, target: View) -> Fence | None:
        """Start copying to `target`, beside the queue if that is possible; None: it is done.

        Nothing in flight touches the target. May raise the HAL's errors.
        """
        self._write(target, source.data[: target.size])
        return None

    def _add_results(self, handle: object, results: tuple[View, ...]) -> None:
        """Have a recording that `_encode` made bring these to the host at its end."""
        del handle, results

    def _read_result(self, recording: Recording, number: int) -> bytes:
        """What the recording, which has run, brought; without `_add_results` it is fetched now."""
        return self._read(recording.results[number])

    @abc.abstractmethod
    def _make_timer(self, capacity: int) -> object: ...

    @abc.abstractmethod
    def _read_timer(self, timer: Timer) -> list[float | None]: ...

    def measure_limits(self) -> Limits | None:
        """What the device reaches at most, measured now (seconds); None if it cannot tell.

        Raises OutOfDeviceMemory, DeviceLost.
        """
        return None

    def read_probe(self) -> ReadProbe | None:
        """What tells again and again how fast memory is read; None if the device cannot tell.

        Raises OutOfDeviceMemory, DeviceLost.
        """
        return None

    @abc.abstractmethod
    def _close(self) -> None:
        """Release everything that this device created. Nothing is in flight, or it is lost."""

    def _leave_to_parent(self) -> None:  # noqa: B027 - many have nothing to let go of
        """In a child process, for a device that `hal.forks` watches: touch nothing any more."""

    # Layouts; backends that repack override the first two together, and the last two.

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        """Bytes that a tensor takes on this device."""
        del role
        return dtype.bytes_for(shape)

    def bytes_read(self, weight: Buffer, shape: Sequence[int], dtype: StorageType) -> int:
        """Bytes of a weight that its products read, once its contents are there.

        All of it, unless the device keeps what the contents allow in fewer.
        """
        del shape, dtype
        return weight.size_in_bytes

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        """The tensor in this device's layout, in consecutive chunks."""
        del shape, dtype, role
        raw = raw_bytes(data)
        for start in range(0, len(raw), UPLOAD_CHUNK_BYTES):
            yield raw[start : start + UPLOAD_CHUNK_BYTES]

    def _kv_block_view(self, cache: Buffer, shape: Sequence[int], dtype: DType, block: int) -> View:
        """Where a block lies in a KV cache."""
        size = dtype.bytes_for(shape[1:])
        return View(cache, block * size, size)

    def _kv_block_values(self, raw: bytes, shape: Sequence[int], dtype: DType) -> Array:
        """A block's bytes as float32 of `shape[1:]`, in the canonical order."""
        return decode_scalars(raw, dtype).reshape(shape[1:])

    def _kv_block_bytes(self, values: Array, dtype: DType) -> Array:
        """The other way: an array whose bytes are the block."""
        return encode_scalars(values, dtype)
