"""Fences over VkFences: nothing in Python runs when a submission ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.hal.fence import Fence

if TYPE_CHECKING:
    from crossinfer.backends.vulkan.device import VulkanDevice


class FencePool:
    """VkFences that are not in use, to be used again."""

    def __init__(self, device: LogicalDevice) -> None:
        self.device = device
        self._free: list[int] = []

    def take(self) -> int:
        """A fence that is not signalled. Raises VulkanError."""
        if self._free:
            handle = self._free.pop()
            self.device.reset(handle)
            return handle
        return self.device.create("Fence", vk.VkFenceCreateInfo())

    def give_back(self, handle: int) -> None:
        self._free.append(handle)


class VulkanFence(Fence):
    """Done when its VkFence is signalled, or when the device is lost.

    `on_finish` is told, once, when it was first seen to be done.
    """

    def __init__(self, device: VulkanDevice, pool: FencePool) -> None:
        """Raises VulkanError."""
        super().__init__(device)
        self._vulkan_device = device
        self._pool = pool
        self.handle = pool.take()
        self.finished = False
        self.on_finish: Callable[[float], None] | None = None

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
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> None:
        if self._is_open():
            deadline_s = self._device.deadline_s if timeout_s is None else timeout_s
            try:
                if self._pool.device.wait(self.handle, deadline_s):
                    self._finish()
                else:
                    self._device.lose(f"no answer within {deadline_s:g} seconds")
            except VulkanError as error:
                self._vulkan_device.fail(error)
        super().wait(0)

    def _is_open(self) -> bool:
        """Whether Vulkan is to be asked. After a fork, the device is lost and must not be."""
        device = self._vulkan_device
        return not (self._event.is_set() or device.is_failing or device.lost is not None)

    def _finish(self) -> None:
        self.finished = True
        if self.on_finish is not None:
            self.on_finish(time.perf_counter())
        self.signal()
