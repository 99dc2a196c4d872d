"""Command buffers: where they come from, and the few commands that this backend records."""

from __future__ import annotations

import ctypes
from typing import Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import (
    BIND_POINT_COMPUTE,
    COMMAND_POOL_RESET,
    STAGE_COMPUTE,
    AccessFlag,
    Stage,
)
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.logical import LogicalDevice

_ACCESSES = {
    Stage.COMPUTE_SHADER: (AccessFlag.SHADER_READ, AccessFlag.SHADER_WRITE),
    Stage.TRANSFER: (AccessFlag.TRANSFER_READ, AccessFlag.TRANSFER_WRITE),
}
WORK = Stage.COMPUTE_SHADER | Stage.TRANSFER
"""Everything that this backend lets a device do."""


class CommandPool:
    """Command buffers for one thread at a time. Raises VulkanError.

    `family` is that of the queue which they are for; the default is the device's own.
    """

    def __init__(self, device: LogicalDevice, family: int | None = None) -> None:
        self.device = device
        family = device.queue_family if family is None else family
        info = vk.VkCommandPoolCreateInfo(flags=COMMAND_POOL_RESET, queueFamilyIndex=family)
        self._handle = device.create("CommandPool", info)

    def allocate(self) -> CommandBuffer:
        info = vk.VkCommandBufferAllocateInfo(commandPool=self._handle, commandBufferCount=1)
        made = ctypes.c_void_p()
        allocate = self.device.functions.vkAllocateCommandBuffers
        code = allocate(self.device.handle, ctypes.byref(info), ctypes.byref(made))
        check("vkAllocateCommandBuffers", code)
        assert made.value is not None
        return CommandBuffer(self.device, made.value)

    def free(self, buffer: CommandBuffer) -> None:
        free = self.device.functions.vkFreeCommandBuffers
        free(self.device.handle, self._handle, 1, vk.handles([buffer.handle]))


class CommandBuffer:
    """Records commands between `begin` and `end`."""

    def __init__(self, device: LogicalDevice, handle: int) -> None:
        self.handle = handle
        self.functions = device.functions
        self.submit_info = vk.VkSubmitInfo(
            commandBufferCount=1, pCommandBuffers=vk.handles([handle])
        )

    def begin(self) -> None:
        """Start anew. Raises VulkanError."""
        info = vk.VkCommandBufferBeginInfo()
        code = self.functions.vkBeginCommandBuffer(self.handle, ctypes.byref(info))
        check("vkBeginCommandBuffer", code)

    def end(self) -> None:
        """Raises VulkanError."""
        check("vkEndCommandBuffer", self.functions.vkEndCommandBuffer(self.handle))

    def barrier(self, earlier: Stage = WORK, later: Stage = WORK) -> None:
        """What was recorded or submitted before finishes; what comes after sees its writes."""
        memory = vk.VkMemoryBarrier(
            srcAccessMask=_accesses(earlier, writes_only=True), dstAccessMask=_accesses(later)
        )
        self._barrier(earlier, later, memory)

    def barrier_to_host(self) -> None:
        """The host sees what was copied before, once the fence is signalled."""
        memory = vk.VkMemoryBarrier(
            srcAccessMask=AccessFlag.TRANSFER_WRITE, dstAccessMask=AccessFlag.HOST_READ
        )
        self._barrier(Stage.TRANSFER, Stage.HOST, memory)

    def copy(self, source: tuple[int, int], target: tuple[int, int], size: int) -> None:
        """`size` bytes between two places, (buffer, offset)."""
        region = vk.VkBufferCopy(srcOffset=source[1], dstOffset=target[1], size=size)
        self.functions.vkCmdCopyBuffer(self.handle, source[0], target[0], 1, ctypes.byref(region))

    def bind(self, pipeline: int, layout: int, descriptor_set: int) -> None:
        """What the next dispatches run, and on which buffers."""
        self.functions.vkCmdBindPipeline(self.handle, BIND_POINT_COMPUTE, pipeline)
        self.functions.vkCmdBindDescriptorSets(
            self.handle, BIND_POINT_COMPUTE, layout, 0, 1, vk.handles([descriptor_set]), 0, None
        )

    def push_constants(self, layout: int, constants: bytes) -> None:
        self.functions.vkCmdPushConstants(
            self.handle, layout, STAGE_COMPUTE, 0, len(constants), constants
        )

    def dispatch(self, grid: tuple[int, int, int]) -> None:
        self.functions.vkCmdDispatch(self.handle, *grid)

    def timestamp(self, queries: int, index: int) -> None:
        """The time when everything before has finished."""
        self.functions.vkCmdResetQueryPool(self.handle, queries, index, 1)
        self.functions.vkCmdWriteTimestamp(self.handle, Stage.BOTTOM_OF_PIPE, queries, index)

    def reset_timestamps(self, queries: int, count: int) -> None:
        self.functions.vkCmdResetQueryPool(self.handle, queries, 0, count)

    def _barrier(self, earlier: Stage, later: Stage, memory: Any) -> None:
        self.functions.vkCmdPipelineBarrier(
            self.handle, earlier, later, 0, 1, ctypes.byref(memory), 0, None, 0, None
        )


def _accesses(stages: Stage, *, writes_only: bool = False) -> int:
    return sum(
        write if writes_only else read | write
        for stage, (read, write) in _ACCESSES.items()
        if stage in stages
    )
