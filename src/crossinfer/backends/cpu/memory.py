"""Memory of the host for buffers, rings and signals: aligned, large pages where they pay."""

from __future__ import annotations

import contextlib
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
    """Memory of its own mapping, for which the kernel is asked for large pages.

    Private: shared memory, which `mmap` makes by default, gets none as most systems are set up.
    """
    try:
        mapped = mmap.mmap(-1, size + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(str(error)) from None
    whole = np.frombuffer(mapped, dtype=np.uint8)
    memory = _aligned(whole, size, _HUGE_PAGE)
    with contextlib.suppress(OSError):  # a kernel that was built without large pages
        # No large page for what is left at the end, most of which would be memory for nothing.
        start = address_of(memory) - address_of(whole)
        mapped.madvise(mmap.MADV_HUGEPAGE, start, size // _HUGE_PAGE * _HUGE_PAGE)
    return memory
