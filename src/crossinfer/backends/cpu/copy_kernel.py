"""The kernel behind `copy_region` and the parameters of a submission."""

from __future__ import annotations

import functools
import string
from pathlib import Path

from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET, CpuKernel
from crossinfer.core.shapes import ceil_div
from crossinfer.hal.kernel import Grid, Kernel
from crossinfer.jit.object_cache import load_cached
from crossinfer.jit.target import host_target

COPY_BLOCK_BYTES = 1 << 16
_SYMBOL = "crossinfer_copy"


def copy_text() -> str:
    """The kernel's module."""
    text = Path(__file__).with_name("native").joinpath("copy.ll").read_text("ascii")
    names = {"copy_block": COPY_BLOCK_BYTES, "constants_offset": CONSTANTS_OFFSET}
    return string.Template(text).substitute(names)


@functools.cache
def copy_kernel() -> Kernel:
    """The kernel for this machine. Raises KernelUnsupported."""
    code = load_cached(copy_text(), host_target(), [_SYMBOL])
    return Kernel("copy", CpuKernel(code.address(_SYMBOL), code))


def copy_constants(size: int) -> bytes:
    return size.to_bytes(8, "little")


def copy_grid(size: int) -> Grid:
    return (ceil_div(size, COPY_BLOCK_BYTES), 1, 1)
