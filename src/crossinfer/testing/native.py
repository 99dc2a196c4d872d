"""Runs ops lowered for the CPU on NumPy memory, without a queue: for tests and benchmarks."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping

import numpy as np

from crossinfer.backends.cpu.kernel import CpuKernel
from crossinfer.backends.cpu.kernels.packing import pack
from crossinfer.core.dtypes import Array, DType
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import LoweredDispatch, Lowering, Operand

_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32
)
_GUARD = 64
_ODD_BYTE = 0x7F


def guarded(size: int) -> Array:
    """uint8 [size] of poison, with more poison on both sides that `check_guards` looks at."""
    return np.full(size + 2 * _GUARD, _ODD_BYTE, dtype=np.uint8)[_GUARD : _GUARD + size]


def check_guards(memory: Array) -> None:
    whole = memory.base
    assert isinstance(whole, np.ndarray)
    assert np.all(whole[:_GUARD] == _ODD_BYTE), "a kernel wrote before its memory"
    assert np.all(whole[_GUARD + memory.size :] == _ODD_BYTE), "a kernel wrote behind its memory"


def to_memory(stored: Array, operand: Operand) -> Array:
    """An operand's bytes as they lie on the device."""
    raw: Array = np.frombuffer(stored.tobytes(), dtype=np.uint8)
    if operand.role is Role.WEIGHT:
        raw = np.concatenate(list(pack(raw, operand.shape, operand.storage)))
    memory = guarded(raw.size)
    memory[:] = raw
    return memory


def bind(dispatch: LoweredDispatch, memory: Mapping[str, Array]) -> Callable[[int, int], None]:
    """A function of (first workgroup, number of workgroups). The memory must outlive it."""
    addresses = [memory[argument.operand].ctypes.data for argument in dispatch.arguments]
    kernarg = struct.pack("<8Q", *addresses, *[0] * (8 - len(addresses))) + dispatch.constants
    kernel = dispatch.kernel.handle
    assert isinstance(kernel, CpuKernel)
    function = _SIGNATURE(kernel.address)
    return lambda first, count: function(kernarg, first, count, 0)


def run_dispatch(
    dispatch: LoweredDispatch, memory: Mapping[str, Array], first: int = 0, count: int | None = None
) -> None:
    """Run workgroups `first … first + count - 1` (default: all)."""
    bind(dispatch, memory)(first, math.prod(dispatch.grid) if count is None else count)


def run_lowering(
    lowering: Lowering, operands: Mapping[str, Operand], stored: Mapping[str, Array]
) -> dict[str, Array]:
    """Every float32 output by name; `stored` has the inputs. Fails on writes outside of tensors."""
    memory = {
        name: to_memory(stored[name], operand)
        if name in stored
        else guarded(operand.storage.bytes_for(operand.shape))
        for name, operand in operands.items()
    }
    memory |= {name: guarded(size) for name, size in lowering.scratch.items()}
    for dispatch in lowering.dispatches:
        run_dispatch(dispatch, memory)
    for array in memory.values():
        check_guards(array)
    return {
        name: memory[name].view(np.float32).reshape(operand.shape)
        for name, operand in operands.items()
        if name not in stored and operand.storage is DType.F32
    }
