"""Memory of the host for buffers, rings and signals: aligned, large pages where they pay."""

from __future__ import annotations

import mmap

import numpy as np

from crossinfer.core.dtypes import Array

ALIGNMENT = 128
"""Two cache lines, which processors fetch together."""
_HUGE_PAGE = 2 << 20


def allocate(size: int) -> Array:
    """`size` bytes (uint8) that start at a multiple of 128. Raises MemoryError."""
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        return _map_huge(size)
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    return _aligned(memory, size, ALIGNMENT)


def allocate_zeroed(size: int) -> Array:
    """As `allocate`, filled with zeros. Raises MemoryError."""
    memory = allocate(size)
    memory[:] = 0
    return memory


def address_of(memory: Array) -> int:
    """Where an array starts."""
    return int(memory.__array_interface__["data"][0])


def _aligned(memory: Array, size: int, alignment: int) -> Array:
    start = -address_of(memory) % alignment
    return memory[start : start + size]


def _map_huge(size: int) -> Array:
    """Memory of its own mapping, for which the kernel is asked for large pages."""
    try:
        mapped = mmap.mmap(-1, size + _HUGE_PAGE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(str(error)) from None
    mapped.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(np.frombuffer(mapped, dtype=np.uint8), size, _HUGE_PAGE)
