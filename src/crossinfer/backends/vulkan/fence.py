"""Fences over VkFences: nothing in Python runs when a submission ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.hal.fence import Fence

if TYPE_CHECKING:
    from crossinfer.backends.vulkan.device import VulkanDevice

# Drivers wake a thread that waits 60 to 100 µs late, as long as a tenth of a small model's step. So
# what has run before is asked for again and again around the time when it should end. A processor
# that slept for milliseconds is slow for a while; one that never slept is ready for the next step.
_ASK_BEFORE_S = 200e-6
_ASK_AFTER_S = 1e-3
_WORTH_STAYING_AWAKE_S = 10e-3


class FencePool:
    """VkFences that are not in use, to be used again."""

    def __init__(self, device: LogicalDevice) -> None:
        self.device = device
        self._free: list[int] = []
        self._arrays: dict[int, Any] = {}
        """Each fence as the array of one that calls take."""

    def take(self) -> int:
        """A fence that is not signalled. Raises VulkanError."""
        if self._free:
            handle = self._free.pop()
            self.device.reset(self._arrays[handle])
            return handle
        handle = self.device.create("Fence", vk.VkFenceCreateInfo())
        self._arrays[handle] = vk.handles([handle])
        return handle

    def wait(self, handle: int, timeout_s: float) -> bool:
        """Whether the fence was signalled within the time. Raises VulkanError."""
        return self.device.wait(self._arrays[handle], timeout_s)

    def give_back(self, handle: int) -> None:
        self._free.append(handle)


class VulkanFence(Fence):
    """Done when its VkFence is signalled, or when the device is lost.

    `on_finish` is told, once, when it was first seen to be done. `expected` is when that should be,
    on the clock of `time.perf_counter`, if it is known and the processor has nothing else to do.
    `stays_awake`: a short wait for that may keep the processor busy; the GPU has its own power.
    """

    def __init__(self, device: VulkanDevice, pool: FencePool) -> None:
        """Raises VulkanError."""
        super().__init__(device)
        self._vulkan_device = device
        self._pool = pool
        self.handle = pool.take()
        self.finished = False
        self.on_finish: Callable[[float], None] | None = None
        self.expected: float | None = None
        self.stays_awake = False

    def __del__(self) -> None:
        if getattr(self, "finished", False):
            self._pool.give_back(self.handle)

    @property
    def done(self) -> bool:
        if self._is_open():
            try:
                if self._pool.device.is_signaled(self.handle):
                    self._finish()
            except VulkanError as error:
                self._vulkan_device.fail(error)
        return self._settled

    def wait(self, timeout_s: float | None = None) -> None:
        if self._is_open():
            deadline_s = self._device.deadline_s if timeout_s is None else timeout_s
            try:
                if self._ends_as_expected() or self._pool.wait(self.handle, deadline_s):
                    self._finish()
                else:
                    self._device.lose(f"no answer within {deadline_s:g} seconds")
            except VulkanError as error:
                self._vulkan_device.fail(error)
        super().wait(0)

    def _ends_as_expected(self) -> bool:
        if self.expected is None:
            return False
        device = self._pool.device
        left = self.expected - time.perf_counter()
        sleeps = left > (_WORTH_STAYING_AWAKE_S if self.stays_awake else _ASK_BEFORE_S)
        if sleeps and self._pool.wait(self.handle, left - _ASK_BEFORE_S):
            return True
        while time.perf_counter() < self.expected + _ASK_AFTER_S:
            if device.is_signaled(self.handle):
                return True
        return False

    def _is_open(self) -> bool:
        """Whether Vulkan is to be asked. After a fork, the device is lost and must not be."""
        device = self._vulkan_device
        return not (self._settled or device.is_failing or device.lost is not None)

    def _finish(self) -> None:
        self.finished = True
        if self.on_finish is not None:
            self.on_finish(time.perf_counter())
        self.signal()
