"""Memory of the host for buffers, rings and signals: aligned, large pages where they pay."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.shapes import align_up
from crossinfer.jit.locks import lock_that_forks_wait_for

ALIGNMENT = 128
"""Two cache lines, which processors fetch together."""
_HUGE_PAGE = 2 << 20
_SLAB = 16 << 20
_SMALL = 64 << 10
"""What is smaller comes from the C library's heap."""


def allocate(size: int) -> Array:
    """`size` bytes (uint8) that start at a multiple of 128. Raises MemoryError."""
    return _slabs.allocate(size)


def allocate_zeroed(size: int) -> Array:
    """As `allocate`, filled with zeros. Raises MemoryError."""
    memory = allocate(size)
    memory[:] = 0
    return memory


def allocate_sparse(size: int) -> Array:
    """As `allocate`, for what may be written in small parts: without large pages, if it is small.

    Of a KV cache a short conversation writes some kilobytes in each layer, and would have the
    system clear a large page for them.
    """
    if size >= _SLAB or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return allocate(size)
    try:
        mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(str(error)) from None
    with contextlib.suppress(OSError):  # as below
        mapped.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(mapped, dtype=np.uint8)


def address_of(memory: Array) -> int:
    """Where an array starts."""
    return int(memory.__array_interface__["data"][0])


def _aligned(memory: Array, size: int, alignment: int) -> Array:
    start = -address_of(memory) % alignment
    return memory[start : start + size]


class Slabs:
    """Pieces of larger mappings, so that what is smaller than a large page lies in one, too.

    A mapping goes when the last of its pieces does; what is freed before is not used again. Large
    pieces have mappings of their own. Thread-safe.
    """

    def __init__(self, slab_bytes: int, lock: threading.Lock) -> None:
        self._slab_bytes = slab_bytes
        self._lock = lock
        self._rest = np.empty(0, dtype=np.uint8)

    @classmethod
    def for_weights(cls) -> Slabs:
        """For one model's weights, which are freed at once: fewer and larger mappings.

        Each ends in a large page that is not used to its end.
        """
        return cls(4 * _SLAB, threading.Lock())

    def allocate(self, size: int) -> Array:
        """As the function of this name."""
        if size < _SMALL or not hasattr(mmap, "MADV_HUGEPAGE"):
            memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
            return _aligned(memory, size, ALIGNMENT)
        if size >= _SLAB:
            return _map_huge(size)
        with self._lock:
            if self._rest.size < size:
                self._rest = _map_huge(self._slab_bytes)
            memory = self._rest[:size]
            self._rest = self._rest[align_up(size, ALIGNMENT) :]
        return memory


_slabs = Slabs(_SLAB, lock_that_forks_wait_for())


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


def trim_heap() -> None:
    """Give memory of the C library's heap that nobody uses back to the system, where it can be."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # GNU's has it
        if trim is not None:
            trim(ctypes.c_size_t(0))
