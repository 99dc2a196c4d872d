"""The descriptor sets of one recording: made and written once, so that a replay updates nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import DESCRIPTOR_STORAGE_BUFFER
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.logical import LogicalDevice

Range = tuple[int, int, int]
"""Buffer, offset, size."""
SetKey = tuple[int, tuple[Range, ...]]
"""A descriptor set layout and the ranges that its bindings see."""


class DescriptorSets:
    """A pool of exactly the sets that are asked for; equal ones are one."""

    def __init__(self, device: LogicalDevice, keys: Sequence[SetKey]) -> None:
        """Raises VulkanError."""
        self._device = device
        unique = list(dict.fromkeys(keys))
        descriptors = sum(len(ranges) for _, ranges in unique)
        size = vk.VkDescriptorPoolSize(
            type=DESCRIPTOR_STORAGE_BUFFER, descriptorCount=max(1, descriptors)
        )
        self._pool = device.create(
            "DescriptorPool",
            vk.VkDescriptorPoolCreateInfo(
                maxSets=max(1, len(unique)), poolSizeCount=1, pPoolSizes=size
            ),
        )
        self.handles = dict(zip(unique, self._allocate(unique), strict=True))
        self._write()

    def destroy(self) -> None:
        self._device.destroy("DescriptorPool", self._pool)

    def _allocate(self, keys: Sequence[SetKey]) -> list[int]:
        if not keys:
            return []
        info = vk.VkDescriptorSetAllocateInfo(
            descriptorPool=self._pool,
            descriptorSetCount=len(keys),
            pSetLayouts=vk.handles([layout for layout, _ in keys]),
        )
        made = vk.handles([None] * len(keys))
        allocate = self._device.functions.vkAllocateDescriptorSets
        check(
            "vkAllocateDescriptorSets",
            allocate(self._device.handle, ctypes.byref(info), made),
        )
        return list(made)

    def _write(self) -> None:
        writes = []
        for (_, ranges), handle in self.handles.items():
            if not ranges:
                continue
            infos = [
                vk.VkDescriptorBufferInfo(buffer=buffer, offset=offset, range=size)
                for buffer, offset, size in ranges
            ]
            writes.append(
                vk.VkWriteDescriptorSet(
                    dstSet=handle,
                    descriptorCount=len(infos),  # of one binding each: they follow each other
                    descriptorType=DESCRIPTOR_STORAGE_BUFFER,
                    pBufferInfo=vk.array_of(infos),
                )
            )
        if writes:
            update = self._device.functions.vkUpdateDescriptorSets
            update(self._device.handle, len(writes), vk.array_of(writes), 0, None)
