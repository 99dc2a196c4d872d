"""A device that runs the CPU's kernels for any instruction set, one after another.

It has no queue of its own: commands go the way of the reference device, whose memory is the host's.
The workgroups of a dispatch run in random order and in random pieces, as workers would take them.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from crossinfer.backends.cpu import kv_layout
from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET, CpuKernel
from crossinfer.backends.cpu.kernels.layout import packed_size
from crossinfer.backends.cpu.kernels.packing import pack
from crossinfer.backends.cpu.lowering import lower
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Role
from crossinfer.hal.hooks import Data, DeviceHooks, raw_bytes
from crossinfer.hal.kernel import Dispatch, Lowering, OpDescription, Operand
from crossinfer.hal.recording import Command, DispatchCommand
from crossinfer.jit.target import Target

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)


class KernelDevice(ReferenceDevice):
    """`change` may alter the constants of dispatches, to see that a fault is found."""

    def __init__(
        self, target: Target, change: Callable[[Dispatch], bytes] = lambda d: d.constants
    ) -> None:
        super().__init__(name=f"kernels-{target.name}", threads=1)
        self._target = target
        self._change = change
        self._order = random.Random()

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return lower(op, operands, self._target)

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        return packed_size(shape, dtype) if role is Role.WEIGHT else dtype.bytes_for(shape)

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        if role is Role.WEIGHT:
            return iter(pack(raw_bytes(data), shape, dtype))
        if role is Role.KV_CACHE:
            assert isinstance(dtype, DType)
            return kv_layout.pack_cache(raw_bytes(data), shape, dtype)
        return DeviceHooks._pack(self, data, shape, dtype, role)

    def _kv_block_values(self, raw: bytes, shape: Sequence[int], dtype: DType) -> Array:
        return kv_layout.block_values(raw, shape, dtype)

    def _kv_block_bytes(self, values: Array, dtype: DType) -> Array:
        return kv_layout.block_bytes(values, dtype)

    def _run_group(self, group: Sequence[Command]) -> None:
        for command in self._order.sample(list(group), len(group)):
            if isinstance(command, DispatchCommand):
                self._run_kernel(command.dispatch)
            else:
                super()._run_group([command])

    def _run_kernel(self, dispatch: Dispatch) -> None:
        kernel = dispatch.kernel.handle
        assert isinstance(kernel, CpuKernel)
        constants = self._change(dispatch)
        arguments = np.zeros(CONSTANTS_OFFSET + 128, dtype=np.uint8)
        arguments[CONSTANTS_OFFSET : CONSTANTS_OFFSET + len(constants)] = bytearray(constants)
        for number, binding in enumerate(dispatch.bindings):
            memory = binding.view.buffer.handle
            assert isinstance(memory, np.ndarray)
            arguments.view(np.uint64)[number] = memory.ctypes.data + binding.view.offset
        run = KERNEL(kernel.address)
        for first, count in self._pieces(int(np.prod(dispatch.grid))):
            run(arguments.ctypes.data, first, count, 0)

    def _pieces(self, workgroups: int) -> list[tuple[int, int]]:
        """All workgroups in (first, count), shuffled."""
        pieces, first = [], 0
        while first < workgroups:
            count = self._order.randint(1, min(9, workgroups - first))
            pieces.append((first, count))
            first += count
        self._order.shuffle(pieces)
        return pieces
