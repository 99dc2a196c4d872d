"""The structures of Vulkan that this backend passes, made from one table when they are first used.

`structures.VkFenceCreateInfo(flags=1)` fills `sType` in. What is given for a pointer (a structure,
an array, bytes) stays alive as long as the structure that points to it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any, ClassVar

# Name: (structure type or None, fields). A field is `name:type`; without a type it is a pointer if
# its name is written like one (pNext, ppNames), else a 32-bit number. Types: u and i are 32 bits, q
# is 64, f a float, p a pointer or handle, c characters, b bytes; `c256` and `VkMemoryType*32` are
# arrays.
_TABLE: dict[str, tuple[int | None, str]] = {
    "VkApplicationInfo": (
        0,
        "pApplicationName applicationVersion pEngineName engineVersion apiVersion",
    ),
    "VkInstanceCreateInfo": (
        1,
        "flags pApplicationInfo enabledLayerCount ppEnabledLayerNames enabledExtensionCount "
        "ppEnabledExtensionNames",
    ),
    "VkDeviceQueueCreateInfo": (2, "flags queueFamilyIndex queueCount pQueuePriorities"),
    "VkDeviceCreateInfo": (
        3,
        "flags queueCreateInfoCount pQueueCreateInfos enabledLayerCount ppEnabledLayerNames "
        "enabledExtensionCount ppEnabledExtensionNames pEnabledFeatures",
    ),
    "VkSubmitInfo": (
        4,
        "waitSemaphoreCount pWaitSemaphores pWaitDstStageMask commandBufferCount pCommandBuffers "
        "signalSemaphoreCount pSignalSemaphores",
    ),
    "VkMemoryAllocateInfo": (5, "allocationSize:q memoryTypeIndex"),
    "VkFenceCreateInfo": (8, "flags"),
    "VkQueryPoolCreateInfo": (11, "flags queryType queryCount pipelineStatistics"),
    "VkBufferCreateInfo": (
        12,
        "flags size:q usage sharingMode queueFamilyIndexCount pQueueFamilyIndices",
    ),
    "VkShaderModuleCreateInfo": (16, "flags codeSize:q pCode"),
    "VkPipelineCacheCreateInfo": (17, "flags initialDataSize:q pInitialData"),
    "VkPipelineShaderStageCreateInfo": (18, "flags stage module:p pName pSpecializationInfo"),
    "VkComputePipelineCreateInfo": (
        29,
        "flags stage:VkPipelineShaderStageCreateInfo layout:p basePipelineHandle:p "
        "basePipelineIndex:i",
    ),
    "VkPipelineLayoutCreateInfo": (
        30,
        "flags setLayoutCount pSetLayouts pushConstantRangeCount pPushConstantRanges",
    ),
    "VkDescriptorSetLayoutCreateInfo": (32, "flags bindingCount pBindings"),
    "VkDescriptorPoolCreateInfo": (33, "flags maxSets poolSizeCount pPoolSizes"),
    "VkDescriptorSetAllocateInfo": (34, "descriptorPool:p descriptorSetCount pSetLayouts"),
    "VkWriteDescriptorSet": (
        35,
        "dstSet:p dstBinding dstArrayElement descriptorCount descriptorType pImageInfo pBufferInfo "
        "pTexelBufferView",
    ),
    "VkCommandPoolCreateInfo": (39, "flags queueFamilyIndex"),
    "VkCommandBufferAllocateInfo": (40, "commandPool:p level commandBufferCount"),
    "VkCommandBufferBeginInfo": (42, "flags pInheritanceInfo"),
    "VkMemoryBarrier": (46, "srcAccessMask dstAccessMask"),
    "VkPhysicalDeviceFeatures2": (1000059000, "features:VkPhysicalDeviceFeatures"),
    "VkPhysicalDeviceProperties2": (1000059001, "properties:VkPhysicalDeviceProperties"),
    "VkPhysicalDeviceMemoryProperties2": (
        1000059006,
        "memoryProperties:VkPhysicalDeviceMemoryProperties",
    ),
    "VkPhysicalDeviceIDProperties": (
        1000071004,
        "deviceUUID:b16 driverUUID:b16 deviceLUID:b8 deviceNodeMask deviceLUIDValid",
    ),
    "VkDebugUtilsMessengerCallbackDataEXT": (
        1000128003,
        "flags pMessageIdName messageIdNumber:i pMessage queueLabelCount pQueueLabels "
        "cmdBufLabelCount pCmdBufLabels objectCount pObjects",
    ),
    "VkDebugUtilsMessengerCreateInfoEXT": (
        1000128004,
        "flags messageSeverity messageType pfnUserCallback:p pUserData",
    ),
    "VkPhysicalDeviceMaintenance3Properties": (
        1000168000,
        "maxPerSetDescriptors maxMemoryAllocationSize:q",
    ),
    "VkPhysicalDeviceDriverProperties": (
        1000196000,
        "driverID driverName:c256 driverInfo:c256 conformanceVersion:b4",
    ),
    "VkPhysicalDeviceMemoryBudgetPropertiesEXT": (1000237000, "heapBudget:q16 heapUsage:q16"),
    "VkValidationFeaturesEXT": (
        1000247000,
        "enabledValidationFeatureCount pEnabledValidationFeatures disabledValidationFeatureCount "
        "pDisabledValidationFeatures",
    ),
    "VkPhysicalDeviceShaderIntegerDotProductFeatures": (1000280000, "shaderIntegerDotProduct"),
    # Only this property is read; the others are `skipped` in their place.
    "VkPhysicalDeviceShaderIntegerDotProductProperties": (
        1000280001,
        "skipped1:u4 integerDotProduct4x8BitPackedSignedAccelerated skipped2:u25",
    ),
    "VkPhysicalDeviceFaultFeaturesEXT": (1000341000, "deviceFault deviceFaultVendorBinary"),
    "VkDeviceFaultCountsEXT": (1000341001, "addressInfoCount vendorInfoCount vendorBinarySize:q"),
    "VkDeviceFaultInfoEXT": (
        1000341002,
        "description:c256 pAddressInfos pVendorInfos pVendorBinaryData",
    ),
    "VkPhysicalDeviceShaderSMBuiltinsPropertiesNV": (1000154001, "shaderSMCount shaderWarpsPerSM"),
    "VkPhysicalDeviceShaderCorePropertiesAMD": (
        1000185000,
        "shaderEngineCount shaderArraysPerEngineCount computeUnitsPerShaderArray "
        "simdPerComputeUnit wavefrontsPerSimd wavefrontSize sgprsPerSimd minSgprAllocation "
        "maxSgprAllocation sgprAllocationGranularity vgprsPerSimd minVgprAllocation "
        "maxVgprAllocation vgprAllocationGranularity",
    ),
    # Structures without a type.
    "VkLayerProperties": (
        None,
        "layerName:c256 specVersion implementationVersion description:c256",
    ),
    "VkExtensionProperties": (None, "extensionName:c256 specVersion"),
    "VkDeviceFaultAddressInfoEXT": (None, "addressType reportedAddress:q addressPrecision:q"),
    "VkDeviceFaultVendorInfoEXT": (None, "description:c256 vendorFaultCode:q vendorFaultData:q"),
    "VkQueueFamilyProperties": (
        None,
        "queueFlags queueCount timestampValidBits minImageTransferGranularity:u3",
    ),
    "VkMemoryType": (None, "propertyFlags heapIndex"),
    "VkMemoryHeap": (None, "size:q flags"),
    "VkPhysicalDeviceMemoryProperties": (
        None,
        "memoryTypeCount memoryTypes:VkMemoryType*32 memoryHeapCount memoryHeaps:VkMemoryHeap*16",
    ),
    "VkMemoryRequirements": (None, "size:q alignment:q memoryTypeBits"),
    "VkDescriptorSetLayoutBinding": (
        None,
        "binding descriptorType descriptorCount stageFlags pImmutableSamplers",
    ),
    "VkPushConstantRange": (None, "stageFlags offset size"),
    "VkDescriptorPoolSize": (None, "type descriptorCount"),
    "VkDescriptorBufferInfo": (None, "buffer:p offset:q range:q"),
    "VkBufferCopy": (None, "srcOffset:q dstOffset:q size:q"),
    "VkPhysicalDeviceProperties": (
        None,
        "apiVersion driverVersion vendorID deviceID deviceType deviceName:c256 "
        "pipelineCacheUUID:b16 limits:VkPhysicalDeviceLimits sparseProperties:u5",
    ),
    # Only these limits are read; the others are `skipped` in their place.
    "VkPhysicalDeviceLimits": (
        None,
        "skipped1:u7 maxStorageBufferRange maxPushConstantsSize maxMemoryAllocationCount "
        "maxSamplerAllocationCount skipped2:q2 skipped3:u3 maxPerStageDescriptorStorageBuffers "
        "skipped4:u34 maxComputeSharedMemorySize maxComputeWorkGroupCount:u3 "
        "maxComputeWorkGroupInvocations maxComputeWorkGroupSize:u3 skipped5:u13 skipped6:q3 "
        "minStorageBufferOffsetAlignment:q skipped7:u21 timestampComputeAndGraphics "
        "timestampPeriod:f skipped8:u12 skipped9:q2 nonCoherentAtomSize:q",
    ),
    "VkPhysicalDeviceFeatures": (None, "skipped:u55"),
}

_TYPES: dict[str, Any] = {
    "u": ctypes.c_uint32,
    "i": ctypes.c_int32,
    "q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "p": ctypes.c_void_p,
    "c": ctypes.c_char,
    "b": ctypes.c_uint8,
}


class Record(ctypes.Structure):
    """A structure of Vulkan. Pointer fields take structures, arrays, bytes or addresses."""

    structure_type: ClassVar[int | None] = None

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        if self.structure_type is not None:
            self.sType = self.structure_type
        for name, value in fields.items():
            setattr(self, name, self._keep(name, value))

    def _keep(self, name: str, value: Any) -> Any:
        """What to store for `value`; what it points to lives as long as this structure."""
        if isinstance(value, bytes):
            value = ctypes.create_string_buffer(value, len(value) + 1)
        if not isinstance(value, ctypes.Structure | ctypes.Array):
            return value
        self.__dict__.setdefault("_kept", []).append(value)
        return ctypes.addressof(value) if _is_pointer(name) else value


def names() -> list[str]:
    """Every structure of the table."""
    return list(_TABLE)


def array_of(records: Sequence[Record]) -> Any:
    """The structures one after another; what they point to stays alive with the array."""
    made = (type(records[0]) * len(records))(*records)
    made.__dict__["_kept"] = list(records)
    return made


def handles(values: Sequence[int | None]) -> Any:
    """An array of handles."""
    return (ctypes.c_void_p * len(values))(*values)


def strings(values: Sequence[str]) -> Any:
    """An array of pointers to C strings."""
    return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))


def __getattr__(name: str) -> type[Record]:
    if name not in _TABLE:
        raise AttributeError(f"The table of structures has no {name}.")
    structure_type, text = _TABLE[name]
    fields: list[tuple[str, Any]] = []
    if structure_type is not None:
        fields += [("sType", ctypes.c_uint32), ("pNext", ctypes.c_void_p)]
    for field in text.split():
        label, _, kind = field.partition(":")
        fields.append((label, _field_type(kind or ("p" if _is_pointer(label) else "u"))))
    made = type(name, (Record,), {"_fields_": fields, "structure_type": structure_type})
    globals()[name] = made
    return made


def _field_type(kind: str) -> Any:
    if kind.startswith("Vk"):
        name, _, count = kind.partition("*")
        found = globals().get(name) or __getattr__(name)
        return found * int(count) if count else found
    count = kind[1:]
    return _TYPES[kind[0]] * int(count) if count else _TYPES[kind[0]]


def _is_pointer(name: str) -> bool:
    return re.match("pp?[A-Z]|pfn[A-Z]", name) is not None
