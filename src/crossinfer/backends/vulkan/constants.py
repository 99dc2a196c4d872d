"""The numbers of Vulkan that this backend uses, under the names of its specification."""

from __future__ import annotations

import enum


class Result(enum.IntEnum):
    """VkResult; codes of extensions that cannot come from the calls made here are left out."""

    VK_SUCCESS = 0
    VK_NOT_READY = 1
    VK_TIMEOUT = 2
    VK_INCOMPLETE = 5
    VK_ERROR_OUT_OF_HOST_MEMORY = -1
    VK_ERROR_OUT_OF_DEVICE_MEMORY = -2
    VK_ERROR_INITIALIZATION_FAILED = -3
    VK_ERROR_DEVICE_LOST = -4
    VK_ERROR_MEMORY_MAP_FAILED = -5
    VK_ERROR_LAYER_NOT_PRESENT = -6
    VK_ERROR_EXTENSION_NOT_PRESENT = -7
    VK_ERROR_FEATURE_NOT_PRESENT = -8
    VK_ERROR_INCOMPATIBLE_DRIVER = -9
    VK_ERROR_TOO_MANY_OBJECTS = -10
    VK_ERROR_FRAGMENTED_POOL = -12
    VK_ERROR_UNKNOWN = -13
    VK_ERROR_OUT_OF_POOL_MEMORY = -1000069000
    VK_ERROR_FRAGMENTATION = -1000161000


OUT_OF_MEMORY = frozenset(
    {
        Result.VK_ERROR_OUT_OF_HOST_MEMORY,
        Result.VK_ERROR_OUT_OF_DEVICE_MEMORY,
        Result.VK_ERROR_TOO_MANY_OBJECTS,
        Result.VK_ERROR_OUT_OF_POOL_MEMORY,
        Result.VK_ERROR_FRAGMENTED_POOL,
        Result.VK_ERROR_FRAGMENTATION,
    }
)


def result_name(code: int) -> str:
    """`VK_ERROR_DEVICE_LOST` for -4; a number that is not known stays one."""
    return Result(code).name if code in Result.__members__.values() else f"VkResult {code}"


class DeviceType(enum.IntEnum):
    """VkPhysicalDeviceType."""

    OTHER = 0
    INTEGRATED_GPU = 1
    DISCRETE_GPU = 2
    VIRTUAL_GPU = 3
    CPU = 4


class QueueFlag(enum.IntFlag):
    GRAPHICS = 1
    COMPUTE = 2
    TRANSFER = 4


class MemoryFlag(enum.IntFlag):
    """VkMemoryPropertyFlagBits."""

    DEVICE_LOCAL = 1
    HOST_VISIBLE = 2
    HOST_COHERENT = 4
    HOST_CACHED = 8
    LAZILY_ALLOCATED = 0x10
    PROTECTED = 0x20
    DEVICE_COHERENT_AMD = 0x40
    DEVICE_UNCACHED_AMD = 0x80


class Stage(enum.IntFlag):
    """VkPipelineStageFlagBits."""

    COMPUTE_SHADER = 0x800
    TRANSFER = 0x1000
    BOTTOM_OF_PIPE = 0x2000
    HOST = 0x4000


class AccessFlag(enum.IntFlag):
    """VkAccessFlagBits."""

    SHADER_READ = 0x20
    SHADER_WRITE = 0x40
    TRANSFER_READ = 0x800
    TRANSFER_WRITE = 0x1000
    HOST_READ = 0x2000


class BufferUsage(enum.IntFlag):
    TRANSFER_SRC = 1
    TRANSFER_DST = 2
    STORAGE_BUFFER = 0x20


class Severity(enum.IntFlag):
    """VkDebugUtilsMessageSeverityFlagBitsEXT."""

    WARNING = 0x100
    ERROR = 0x1000


API_1_1 = (1 << 22) | (1 << 12)
API_1_2 = (1 << 22) | (2 << 12)
API_1_3 = (1 << 22) | (3 << 12)

DESCRIPTOR_STORAGE_BUFFER = 7
STAGE_COMPUTE = 0x20
BIND_POINT_COMPUTE = 1
QUERY_TIMESTAMP = 2
QUERY_RESULT_64 = 1
QUERY_RESULT_WITH_AVAILABILITY = 4
HEAP_DEVICE_LOCAL = 1
MESSAGE_TYPE_VALIDATION = 2
VALIDATE_SYNCHRONIZATION = 4
COMMAND_POOL_RESET = 2
SHARING_CONCURRENT = 1
