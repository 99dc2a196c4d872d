"""Descriptors, for operators that are bound through them: our kernels take none.

A command list uses one heap at a time, and to make a heap is slow. So there are few heaps, of which
each recording has a range on loan.
"""

from __future__ import annotations

import collections
import ctypes
import threading
import weakref

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.interfaces import ID3D12DescriptorHeap
from crossinfer.backends.d3d12.operators import DescriptorRange

HEAP_DESCRIPTORS = 4096
_TYPE_CBV_SRV_UAV = 0
_FLAG_SHADER_VISIBLE = 1


class _Description(ctypes.Structure):
    """D3D12_DESCRIPTOR_HEAP_DESC"""

    _fields_ = (
        ("Type", ctypes.c_uint32),
        ("NumDescriptors", ctypes.c_uint32),
        ("Flags", ctypes.c_uint32),
        ("NodeMask", ctypes.c_uint32),
    )


class _Heap:
    """A shader-visible heap with its free ranges: first entry to number of entries."""

    def __init__(self, device: ComObject, count: int) -> None:
        """Raises ComError."""
        description = _Description(_TYPE_CBV_SRV_UAV, count, _FLAG_SHADER_VISIBLE, 0)
        self.native = device.create(
            "CreateDescriptorHeap", ID3D12DescriptorHeap, ctypes.byref(description)
        )
        self.step = int(device.GetDescriptorHandleIncrementSize(_TYPE_CBV_SRV_UAV))
        self.cpu = _start(self.native, "GetCPUDescriptorHandleForHeapStart")
        self.gpu = _start(self.native, "GetGPUDescriptorHandleForHeapStart")
        self._free = {0: count}

    def take(self, count: int) -> int | None:
        """The first entry of a range, or None if no range is long enough."""
        for first, length in self._free.items():
            if length >= count:
                del self._free[first]
                if length > count:
                    self._free[first + count] = length - count
                return first
        return None

    def give_back(self, first: int, count: int) -> None:
        following = self._free.pop(first + count, 0)
        for start, length in self._free.items():
            if start + length == first:
                self._free[start] = length + count + following
                return
        self._free[first] = count + following


class DescriptorLoan:
    """A range of a heap; it goes back when nobody refers to the loan any more.

    It must outlive the execution of every list that uses it.
    """

    def __init__(self, heap: _Heap, first: int, count: int) -> None:
        self._heap = heap
        self._next = first
        self._end = first + count

    def set_on(self, commands: ComObject) -> None:
        """Make a command list use this heap, and no other."""
        commands.SetDescriptorHeaps(1, (ctypes.c_void_p * 1)(self._heap.native.address))

    def take(self, count: int) -> DescriptorRange:
        """The next entries; no more in all than the loan was made for."""
        assert self._next + count <= self._end, "the loan was made for all of its users"
        offset = self._next * self._heap.step
        self._next += count
        return DescriptorRange(self._heap.cpu + offset, self._heap.gpu + offset, count)


class DescriptorPool:
    """The heaps of one device. Thread-safe."""

    def __init__(self, device: ComObject) -> None:
        """`device` is an ID3D12Device. No heap is made before one is needed."""
        self._device = device
        self._heaps: list[_Heap] = []
        self._lock = threading.Lock()
        # One step each: a loan may end on any thread at any moment, also while heaps are searched.
        self._ended: collections.deque[tuple[_Heap, int, int]] = collections.deque()

    def lend(self, count: int) -> DescriptorLoan:
        """Entries that follow each other. Raises ComError."""
        count = max(1, count)
        with self._lock:
            while self._ended:
                heap, first_of_ended, ended = self._ended.popleft()
                heap.give_back(first_of_ended, ended)
            for heap in self._heaps:
                first = heap.take(count)
                if first is not None:
                    break
            else:
                heap = _Heap(self._device, max(count, HEAP_DESCRIPTORS))
                self._heaps.append(heap)
                first = heap.take(count)
                assert first is not None
        loan = DescriptorLoan(heap, first, count)
        weakref.finalize(loan, self._ended.append, (heap, first, count)).atexit = False
        return loan


def _start(heap: ComObject, method: str) -> int:
    made = ctypes.c_uint64()
    getattr(heap, method)(ctypes.byref(made))
    return made.value
