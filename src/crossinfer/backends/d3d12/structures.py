"""The structures that this backend passes to Direct3D 12, DXGI and DXCore, as in their headers.

Their sizes are those of 64-bit systems, which tests compare with the documented ones.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p


class D3D12_COMMAND_QUEUE_DESC(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Type", c_uint32),
        ("Priority", c_int32),
        ("Flags", c_uint32),
        ("NodeMask", c_uint32),
    )


class D3D12_HEAP_PROPERTIES(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Type", c_uint32),
        ("CPUPageProperty", c_uint32),
        ("MemoryPoolPreference", c_uint32),
        ("CreationNodeMask", c_uint32),
        ("VisibleNodeMask", c_uint32),
    )


class D3D12_RESOURCE_DESC(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Dimension", c_uint32),
        ("Alignment", c_uint64),
        ("Width", c_uint64),
        ("Height", c_uint32),
        ("DepthOrArraySize", c_uint16),
        ("MipLevels", c_uint16),
        ("Format", c_uint32),
        ("SampleCount", c_uint32),
        ("SampleQuality", c_uint32),
        ("Layout", c_uint32),
        ("Flags", c_uint32),
    )


class D3D12_RESOURCE_TRANSITION_BARRIER(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("pResource", c_void_p),
        ("Subresource", c_uint32),
        ("StateBefore", c_uint32),
        ("StateAfter", c_uint32),
    )


class D3D12_RESOURCE_BARRIER(ctypes.Structure):  # noqa: N801
    """With the member of its union that is the largest; of an UAV barrier only pResource counts."""

    _fields_ = (
        ("Type", c_uint32),
        ("Flags", c_uint32),
        ("Transition", D3D12_RESOURCE_TRANSITION_BARRIER),
    )


class D3D12_ROOT_PARAMETER(ctypes.Structure):  # noqa: N801
    """Of its union the members of constants and of descriptors, which begin alike."""

    _fields_ = (
        ("ParameterType", c_uint32),
        ("_before_union", c_uint32),  # the union's largest member holds a pointer
        ("ShaderRegister", c_uint32),
        ("RegisterSpace", c_uint32),
        ("Num32BitValues", c_uint32),
        ("_rest_of_union", c_uint32),
        ("ShaderVisibility", c_uint32),
        ("_end", c_uint32),
    )


class D3D12_ROOT_SIGNATURE_DESC(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("NumParameters", c_uint32),
        ("pParameters", c_void_p),
        ("NumStaticSamplers", c_uint32),
        ("pStaticSamplers", c_void_p),
        ("Flags", c_uint32),
    )


class D3D12_COMPUTE_PIPELINE_STATE_DESC(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("pRootSignature", c_void_p),
        ("pShaderBytecode", c_void_p),
        ("BytecodeLength", c_size_t),
        ("NodeMask", c_uint32),
        ("pCachedBlob", c_void_p),
        ("CachedBlobSizeInBytes", c_size_t),
        ("Flags", c_uint32),
    )


class D3D12_QUERY_HEAP_DESC(ctypes.Structure):  # noqa: N801
    _fields_ = (("Type", c_uint32), ("Count", c_uint32), ("NodeMask", c_uint32))


class D3D12_RANGE(ctypes.Structure):  # noqa: N801
    _fields_ = (("Begin", c_size_t), ("End", c_size_t))


class D3D12_FEATURE_DATA_ARCHITECTURE(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("NodeIndex", c_uint32),
        ("TileBasedRenderer", c_int32),
        ("UMA", c_int32),
        ("CacheCoherentUMA", c_int32),
    )


class D3D12_MESSAGE(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Category", c_uint32),
        ("Severity", c_uint32),
        ("ID", c_uint32),
        ("pDescription", c_void_p),
        ("DescriptionByteLength", c_size_t),
    )


class D3D12_AUTO_BREADCRUMB_NODE(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("pCommandListDebugNameA", c_void_p),
        ("pCommandListDebugNameW", c_void_p),
        ("pCommandQueueDebugNameA", c_void_p),
        ("pCommandQueueDebugNameW", c_void_p),
        ("pCommandList", c_void_p),
        ("pCommandQueue", c_void_p),
        ("BreadcrumbCount", c_uint32),
        ("pLastBreadcrumbValue", c_void_p),
        ("pCommandHistory", c_void_p),
        ("pNext", c_void_p),
    )


class D3D12_DRED_ALLOCATION_NODE(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("ObjectNameA", c_void_p),
        ("ObjectNameW", c_void_p),
        ("AllocationType", c_uint32),
        ("pNext", c_void_p),
    )


class D3D12_DRED_PAGE_FAULT_OUTPUT(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("PageFaultVA", c_uint64),
        ("pHeadExistingAllocationNode", c_void_p),
        ("pHeadRecentFreedAllocationNode", c_void_p),
    )


class LUID(ctypes.Structure):
    _fields_ = (("LowPart", c_uint32), ("HighPart", c_int32))


class DXGI_ADAPTER_DESC1(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Description", c_uint16 * 128),
        ("VendorId", c_uint32),
        ("DeviceId", c_uint32),
        ("SubSysId", c_uint32),
        ("Revision", c_uint32),
        ("DedicatedVideoMemory", c_size_t),
        ("DedicatedSystemMemory", c_size_t),
        ("SharedSystemMemory", c_size_t),
        ("AdapterLuid", LUID),
        ("Flags", c_uint32),
    )


class DXGI_QUERY_VIDEO_MEMORY_INFO(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("Budget", c_uint64),
        ("CurrentUsage", c_uint64),
        ("AvailableForReservation", c_uint64),
        ("CurrentReservation", c_uint64),
    )


class DXCoreHardwareID(ctypes.Structure):
    _fields_ = (
        ("vendorID", c_uint32),
        ("deviceID", c_uint32),
        ("subSysID", c_uint32),
        ("revision", c_uint32),
    )


class VkPhysicalDeviceProperties(ctypes.Structure):
    """Of Vulkan; its beginning, and room for its limits."""

    _fields_ = (
        ("apiVersion", c_uint32),
        ("driverVersion", c_uint32),
        ("vendorID", c_uint32),
        ("deviceID", c_uint32),
        ("deviceType", c_uint32),
        ("deviceName", c_char * 256),
        ("pipelineCacheUUID", c_uint8 * 16),
        ("rest", c_uint8 * 1024),
    )


class VkMemoryHeap(ctypes.Structure):
    _fields_ = (("size", c_uint64), ("flags", c_uint32))


class VkPhysicalDeviceMemoryProperties(ctypes.Structure):
    """Of Vulkan; memory types are pairs of flags and heap."""

    _fields_ = (
        ("memoryTypeCount", c_uint32),
        ("memoryTypes", c_uint32 * 64),
        ("memoryHeapCount", c_uint32),
        ("memoryHeaps", VkMemoryHeap * 16),
    )
