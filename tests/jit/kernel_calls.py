"""Calls generated kernels with NumPy arrays as their views."""

from __future__ import annotations

import ctypes

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.jit.builder import CONSTANTS_OFFSET
from crossinfer.jit.compile import compile_object, load_object
from crossinfer.jit.target import Target

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)


def call_kernel(
    ir: str, target: Target, views: list[Array], constants: bytes = b"", workgroups: int = 1
) -> None:
    """Compile the kernel called `kernel` and run it over all workgroups."""
    code = load_object(compile_object(ir, target), ["kernel"])
    arguments = np.zeros(CONSTANTS_OFFSET + 128, dtype=np.uint8)
    for number, view in enumerate(views):
        arguments.view(np.uint64)[number] = view.ctypes.data
    arguments[CONSTANTS_OFFSET : CONSTANTS_OFFSET + len(constants)] = bytearray(constants)
    _KERNEL(code.address("kernel"))(arguments.ctypes.data, 0, workgroups, 0)
