"""Device memory of one case: operands between guard bands, and copies to find changes by."""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import Array, DType, decode_scalars
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Operand

_GUARD_BYTES = VIEW_ALIGNMENT
NAN_BYTE = 0xFF
"""Memory full of it reads as NaN in every float type, and as -1 in int32."""
ODD_BYTE = 0x7F
"""Memory full of it reads as values that no op gives: NaN in float16, 3.4e38, 2139062143."""


class OperandMemory:
    """An operand on a device, in memory that it does not share.

    Plain tensors lie between guard bands, so that a write outside of them is found and a read
    outside of them gives `guard` bytes. Weights and KV caches have a layout of the device's own.
    """

    def __init__(self, device: Device, operand: Operand, data: Array, guard: int) -> None:
        """`data`: the operand's bytes in its storage. Raises the device's errors."""
        self._device = device
        self._operand = operand
        if operand.role is Role.PLAIN:
            payload = np.frombuffer(data.tobytes(), dtype=np.uint8)
            size = align_up(payload.size, VIEW_ALIGNMENT) + 2 * _GUARD_BYTES
            image = np.full(size, guard, dtype=np.uint8)
            image[_GUARD_BYTES : _GUARD_BYTES + payload.size] = payload
            self._buffer = device.upload(image.tobytes(), (size // 4,), DType.I32)
            self.view = View(self._buffer, _GUARD_BYTES, payload.size)
        else:
            self._buffer = device.upload(data, operand.shape, operand.storage, operand.role)
            self.view = self._buffer.view()
        self._before = np.frombuffer(device.download(self._buffer), dtype=np.uint8)

    def values(self) -> Array:
        """The contents in the operand's shape, as float32 or int32. Raises the device's errors."""
        shape, storage = self._operand.shape, self._operand.storage
        assert isinstance(storage, DType), "only scalars are written by kernels"
        if self._operand.role is not Role.KV_CACHE:
            return decode_scalars(self._device.download(self.view), storage).reshape(shape)
        blocks = range(shape[0])
        export = self._device.export_kv_block
        return np.stack([export(self._buffer, shape, storage, block) for block in blocks])

    def is_unchanged(self, *, outside_only: bool = False) -> bool:
        """Whether every byte is what it was, or every byte outside of the view."""
        same = np.frombuffer(self._device.download(self._buffer), dtype=np.uint8) == self._before
        if outside_only:
            same[self.view.offset : self.view.end] = True
        return bool(np.all(same))

    def free(self) -> None:
        self._device.free(self._buffer)


def poisoned(device: Device, operand: Operand, expected: Array) -> OperandMemory:
    """Memory for an output, full of what it must not hold in the end."""
    looks_right = operand.storage is DType.I32 or not np.all(np.isfinite(expected))
    poison = ODD_BYTE if looks_right else NAN_BYTE
    size = operand.storage.bytes_for(operand.shape)
    return OperandMemory(device, operand, np.full(size, poison, np.uint8), ODD_BYTE)


def scratch_memory(device: Device, size: int) -> OperandMemory:
    """Scratch memory of at least `size` bytes, full of NaN."""
    words = align_up(size, DType.F32.block_bytes)
    return OperandMemory(
        device,
        Operand((words // DType.F32.block_bytes,), DType.F32),
        np.full(words, NAN_BYTE, np.uint8),
        ODD_BYTE,
    )
