"""Timers over query pools."""

from __future__ import annotations

import ctypes
import functools
import weakref

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import (
    QUERY_RESULT_64,
    QUERY_RESULT_WITH_AVAILABILITY,
    QUERY_TIMESTAMP,
)
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.core.errors import KernelUnsupported
from crossinfer.hal.timer import Timer


class TimerQueries:
    """A row of timestamps; the handle of a `Timer`. Must be reset on the device before use."""

    def __init__(self, device: LogicalDevice, capacity: int) -> None:
        """Raises VulkanError; KernelUnsupported if the queue keeps no time."""
        physical = device.physical
        bits = physical.queue_families[device.queue_family].timestamp_bits
        if not bits:
            raise KernelUnsupported(f"The compute queue of {physical.name} keeps no time.")
        self.capacity = capacity
        self.pool = device.create(
            "QueryPool",
            vk.VkQueryPoolCreateInfo(queryType=QUERY_TIMESTAMP, queryCount=capacity),
        )
        destroy = functools.partial(device.destroy, "QueryPool", self.pool)
        weakref.finalize(self, device.destroy_later, destroy)
        self._device = device
        self._mask = (1 << bits) - 1
        self._seconds = physical.limits.timestampPeriod * 1e-9

    def read(self) -> list[float | None]:
        """Every entry in seconds; None where none was written. Raises VulkanError."""
        pairs = (ctypes.c_uint64 * (2 * self.capacity))()  # a time, and whether there is one
        stride = 2 * ctypes.sizeof(ctypes.c_uint64)
        flags = QUERY_RESULT_64 | QUERY_RESULT_WITH_AVAILABILITY
        get = self._device.functions.vkGetQueryPoolResults
        code = get(
            self._device.handle, self.pool, 0, self.capacity, ctypes.sizeof(pairs), pairs, stride,
            flags,
        )  # fmt: skip
        check("vkGetQueryPoolResults", code)
        values = list(pairs)
        return [
            (time & self._mask) * self._seconds if available else None
            for time, available in zip(values[::2], values[1::2], strict=True)
        ]


def queries_of(timer: Timer) -> TimerQueries:
    """The timestamps behind a timer of this backend."""
    assert isinstance(timer.handle, TimerQueries)
    return timer.handle
