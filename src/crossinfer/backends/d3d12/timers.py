"""Timers over query heaps. A list that takes times also copies them to memory of the host."""

from __future__ import annotations

import ctypes

from crossinfer.backends.d3d12.constants import QUERY_HEAP_TIMESTAMP, Heap
from crossinfer.backends.d3d12.interfaces import ID3D12QueryHeap
from crossinfer.backends.d3d12.memory import create_buffer
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.structures import D3D12_QUERY_HEAP_DESC
from crossinfer.hal.timer import Timer


class TimerQueries:
    """A row of timestamps; the handle of a `Timer`."""

    def __init__(self, native: NativeDevice, capacity: int) -> None:
        """Raises ComError."""
        description = D3D12_QUERY_HEAP_DESC(Type=QUERY_HEAP_TIMESTAMP, Count=capacity)
        self.heap = native.device.create(
            "CreateQueryHeap", ID3D12QueryHeap, ctypes.byref(description)
        )
        self.times = create_buffer(native.device, Heap.READBACK, 8 * capacity)
        ctypes.memset(self.times.mapped, 0, self.times.size)
        self._capacity = capacity
        frequency = ctypes.c_uint64()
        native.queue.GetTimestampFrequency(ctypes.byref(frequency))
        self._ticks_per_s = frequency.value

    def read(self) -> list[float | None]:
        """Every entry in seconds; None where none was written."""
        ticks = (ctypes.c_uint64 * self._capacity).from_address(self.times.mapped)
        return [tick / self._ticks_per_s if tick else None for tick in ticks]


def queries_of(timer: Timer) -> TimerQueries:
    """The timestamps behind a timer of this backend."""
    assert isinstance(timer.handle, TimerQueries)
    return timer.handle
