"""What a physical device is and can do, read once."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import (
    API_1_1,
    API_1_2,
    HEAP_DEVICE_LOCAL,
    MemoryFlag,
    QueueFlag,
)
from crossinfer.backends.vulkan.errors import check
from crossinfer.backends.vulkan.functions import Functions

INTEGER_DOT_EXTENSION = "VK_KHR_shader_integer_dot_product"

# Kinds of memory that need features of their own, or that are slow on purpose.
_SPECIAL_MEMORY = (
    MemoryFlag.LAZILY_ALLOCATED
    | MemoryFlag.PROTECTED
    | MemoryFlag.DEVICE_COHERENT_AMD
    | MemoryFlag.DEVICE_UNCACHED_AMD
)


@dataclasses.dataclass(frozen=True)
class QueueFamily:
    index: int
    flags: int
    timestamp_bits: int

    @property
    def can_compute(self) -> bool:
        return bool(self.flags & QueueFlag.COMPUTE)


@dataclasses.dataclass(frozen=True)
class MemoryType:
    index: int
    flags: int
    heap: int


class PhysicalDevice:
    """Properties, limits, queues, memory and extensions of one physical device.

    Raises VulkanError. A device of Vulkan 1.0 has `api_version` only.
    """

    def __init__(self, functions: Functions, handle: int) -> None:
        self.functions = functions
        self.handle = handle
        properties = self._properties()
        self.api_version: int = properties.apiVersion
        self.driver_version: int = properties.driverVersion
        self.vendor: int = properties.vendorID
        self.device: int = properties.deviceID
        self.type: int = properties.deviceType
        self.name: str = properties.deviceName.decode(errors="replace")
        self.cache_uuid = bytes(properties.pipelineCacheUUID)
        self.limits: Any = properties.limits
        self.is_usable = self.api_version >= API_1_1
        self.extensions = self._extensions()
        self.queue_families = self._queue_families()
        self.memory_types, self.heap_sizes, self._heap_flags = self._memory()
        self.identity = self._chained(vk.VkPhysicalDeviceIDProperties())
        self.max_allocation: int = self._chained(
            vk.VkPhysicalDeviceMaintenance3Properties()
        ).maxMemoryAllocationSize

    def driver(self) -> tuple[str, str]:
        """The driver's name and version as it writes them itself, if it does."""
        if self.api_version >= API_1_2 or "VK_KHR_driver_properties" in self.extensions:
            found = self._chained(vk.VkPhysicalDeviceDriverProperties())
            return found.driverName.decode(errors="replace"), found.driverInfo.decode(
                errors="replace"
            )
        return "driver", f"{self.driver_version:#x}"

    def multiprocessors(self) -> int:
        """The number of processors that run workgroups; 0 if the driver does not tell."""
        if "VK_NV_shader_sm_builtins" in self.extensions:
            found = self._chained(vk.VkPhysicalDeviceShaderSMBuiltinsPropertiesNV())
            return int(found.shaderSMCount)
        if "VK_AMD_shader_core_properties" in self.extensions:
            found = self._chained(vk.VkPhysicalDeviceShaderCorePropertiesAMD())
            arrays = found.shaderEngineCount * found.shaderArraysPerEngineCount
            return int(arrays * found.computeUnitsPerShaderArray)
        return 0

    def has_integer_dots(self) -> bool:
        """Whether shaders may take dot products of packed bytes, on a device that asks for it."""
        if INTEGER_DOT_EXTENSION not in self.extensions:
            return False
        features = self.supported(vk.VkPhysicalDeviceShaderIntegerDotProductFeatures())
        return bool(features.shaderIntegerDotProduct)

    def has_fast_integer_dots(self) -> bool:
        """Whether `has_integer_dots`, and those of signed bytes are instructions of the device."""
        if not self.has_integer_dots():
            return False
        found = self._chained(vk.VkPhysicalDeviceShaderIntegerDotProductProperties())
        return bool(found.integerDotProduct4x8BitPackedSignedAccelerated)

    def device_heap(self) -> int:
        """The largest heap that is the device's own."""
        heaps = range(len(self.heap_sizes))
        own = [h for h in heaps if self._heap_flags[h] & HEAP_DEVICE_LOCAL] or list(heaps)
        return max(own, key=self.heap_sizes.__getitem__)

    def memory_budget(self) -> int:
        """Bytes of the device's heap that this process may take."""
        heap = self.device_heap()
        if "VK_EXT_memory_budget" not in self.extensions:
            return self.heap_sizes[heap]
        budget = vk.VkPhysicalDeviceMemoryBudgetPropertiesEXT()
        request = vk.VkPhysicalDeviceMemoryProperties2(pNext=budget)
        self.functions.vkGetPhysicalDeviceMemoryProperties2(self.handle, ctypes.byref(request))
        return min(int(budget.heapBudget[heap]) or self.heap_sizes[heap], self.heap_sizes[heap])

    def compute_family(self) -> QueueFamily | None:
        """The queue family to use: with timestamps, and best one that draws nothing."""
        able = [family for family in self.queue_families if family.can_compute]
        return min(
            able,
            key=lambda family: (not family.timestamp_bits, family.flags & QueueFlag.GRAPHICS),
            default=None,
        )

    def copy_family(self) -> QueueFamily | None:
        """The queue family that does nothing but copy, if there is one: an engine of its own."""
        busy = QueueFlag.COMPUTE | QueueFlag.GRAPHICS
        able = (f for f in self.queue_families if f.flags & (busy | QueueFlag.TRANSFER))
        return next((f for f in able if not f.flags & busy), None)

    def memory_type(
        self, allowed: int, required: MemoryFlag, preferred: MemoryFlag, heap: int | None = None
    ) -> int | None:
        """The index of a memory type among the bits of `allowed`, with as few flags beside.

        `heap`: where it should lie, if possible.
        """
        able = [
            kind
            for kind in self.memory_types
            if allowed >> kind.index & 1
            and kind.flags & required == required
            and not kind.flags & _SPECIAL_MEMORY
        ]
        best = min(
            able,
            key=lambda kind: (
                heap is not None and kind.heap != heap,
                (preferred & ~kind.flags).bit_count(),
                (kind.flags & ~(required | preferred)).bit_count(),
            ),
            default=None,
        )
        return None if best is None else best.index

    def supported(self, features: vk.Record) -> Any:
        """A structure of features, filled in by the driver."""
        request = vk.VkPhysicalDeviceFeatures2(pNext=features)
        self.functions.vkGetPhysicalDeviceFeatures2(self.handle, ctypes.byref(request))
        return features

    def _properties(self) -> Any:
        request = vk.VkPhysicalDeviceProperties2()
        self.functions.vkGetPhysicalDeviceProperties2(self.handle, ctypes.byref(request))
        return request.properties

    def _chained(self, properties: vk.Record) -> Any:
        request = vk.VkPhysicalDeviceProperties2(pNext=properties)
        self.functions.vkGetPhysicalDeviceProperties2(self.handle, ctypes.byref(request))
        return properties

    def _extensions(self) -> frozenset[str]:
        call, count = self.functions.vkEnumerateDeviceExtensionProperties, ctypes.c_uint32()
        name = "vkEnumerateDeviceExtensionProperties"
        check(name, call(self.handle, None, ctypes.byref(count), None))
        found = (vk.VkExtensionProperties * count.value)()
        check(name, call(self.handle, None, ctypes.byref(count), found))
        return frozenset(extension.extensionName.decode() for extension in found)

    def _queue_families(self) -> Sequence[QueueFamily]:
        call, count = self.functions.vkGetPhysicalDeviceQueueFamilyProperties, ctypes.c_uint32()
        call(self.handle, ctypes.byref(count), None)
        found = (vk.VkQueueFamilyProperties * count.value)()
        call(self.handle, ctypes.byref(count), found)
        return [
            QueueFamily(index, family.queueFlags, family.timestampValidBits)
            for index, family in enumerate(found)
        ]

    def _memory(self) -> tuple[list[MemoryType], list[int], list[int]]:
        request = vk.VkPhysicalDeviceMemoryProperties2()
        self.functions.vkGetPhysicalDeviceMemoryProperties2(self.handle, ctypes.byref(request))
        memory = request.memoryProperties
        types = memory.memoryTypes[: memory.memoryTypeCount]
        heaps = memory.memoryHeaps[: memory.memoryHeapCount]
        return (
            [MemoryType(i, kind.propertyFlags, kind.heapIndex) for i, kind in enumerate(types)],
            [int(heap.size) for heap in heaps],
            [int(heap.flags) for heap in heaps],
        )
