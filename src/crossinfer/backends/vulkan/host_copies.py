"""Copies out of memory that the host keeps mapped, on a queue of their own where there is one.

Discrete GPUs have an engine for this that works beside their processors. Devices with one queue
only run such copies in the order of the queue.
"""

from __future__ import annotations

import ctypes

import numpy as np

from crossinfer.backends.vulkan.commands import CommandBuffer, CommandPool
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.memory import (
    UPLOAD_MEMORY,
    Allocation,
    Allocator,
    Block,
    place_of,
)
from crossinfer.core.dtypes import Array
from crossinfer.hal.buffer import View

_Key = tuple[Allocation, tuple[int, int], int]
"""Source, place of the target, bytes."""


class HostCopies:
    """Host memory, and the recorded copies out of it. Used by one thread. Raises VulkanError."""

    def __init__(self, device: LogicalDevice) -> None:
        self._device = device
        self._pool = CommandPool(device, device.copy_queue.family)
        self._memory = Allocator(device, UPLOAD_MEMORY)
        self._recorded: dict[_Key, CommandBuffer] = {}

    def alloc(self, size: int) -> tuple[Array, Allocation]:
        """Mapped memory, and the host's sight of it: uint8 [size]."""
        memory = self._memory.alloc(size)
        data = (ctypes.c_uint8 * size).from_address(memory.address)
        return np.ctypeslib.as_array(data), memory

    def free(self, memory: Allocation) -> None:
        for key in [key for key in self._recorded if key[0] is memory]:
            self._pool.free(self._recorded.pop(key))
        self._memory.free(memory)

    def forget(self, block: Block) -> None:
        """A block is about to go away; no copy to it runs."""
        for key in [key for key in self._recorded if key[1][0] == block.buffer]:
            self._pool.free(self._recorded.pop(key))

    def submit(self, source: Allocation, target: View, fence: int) -> None:
        """Copy the start of `source` over `target`; the commands are kept for the next time."""
        key = source, place_of(target), target.size
        commands = self._recorded.get(key)
        if commands is None:
            commands = self._pool.allocate()
            commands.begin()
            commands.copy((source.buffer, source.offset), key[1], target.size)
            commands.end()
            self._recorded[key] = commands
        queue = self._device.copy_queue
        self._device.submit_to(queue, ctypes.byref(commands.submit_info), fence)
