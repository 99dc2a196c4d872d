"""The numbers of Direct3D 12, DXGI and DXCore that this backend uses, named as in the headers."""

from __future__ import annotations

import enum


class FeatureLevel(enum.IntEnum):
    """D3D_FEATURE_LEVEL."""

    CORE_1_0 = 0x1000
    """Compute only: what an NPU has."""
    LEVEL_11_0 = 0xB000


class ListType(enum.IntEnum):
    """D3D12_COMMAND_LIST_TYPE: what a queue takes."""

    DIRECT = 0
    COMPUTE = 2


class Heap(enum.IntEnum):
    """D3D12_HEAP_TYPE."""

    DEFAULT = 1
    UPLOAD = 2
    READBACK = 3


class State(enum.IntFlag):
    """D3D12_RESOURCE_STATES."""

    COMMON = 0
    UNORDERED_ACCESS = 0x8
    NON_PIXEL_SHADER_RESOURCE = 0x40
    COPY_DEST = 0x400
    COPY_SOURCE = 0x800
    GENERIC_READ = 0xAC3


class BarrierType(enum.IntEnum):
    """D3D12_RESOURCE_BARRIER_TYPE."""

    TRANSITION = 0
    UAV = 2


class Feature(enum.IntEnum):
    """D3D12_FEATURE."""

    ARCHITECTURE = 1
    SHADER_MODEL = 7


class ParameterType(enum.IntEnum):
    """D3D12_ROOT_PARAMETER_TYPE."""

    CONSTANTS = 1
    SRV = 3
    UAV = 4


class AdapterProperty(enum.IntEnum):
    """DXCoreAdapterProperty."""

    INSTANCE_LUID = 0
    DRIVER_VERSION = 1
    DRIVER_DESCRIPTION = 2
    HARDWARE_ID = 3
    DEDICATED_ADAPTER_MEMORY = 7
    SHARED_SYSTEM_MEMORY = 9
    IS_HARDWARE = 11
    IS_INTEGRATED = 12


RESOURCE_BUFFER = 1
"""D3D12_RESOURCE_DIMENSION_BUFFER."""
LAYOUT_ROW_MAJOR = 1
ALLOW_UNORDERED_ACCESS = 4
ALL_SUBRESOURCES = 0xFFFFFFFF
QUERY_HEAP_TIMESTAMP = 1
QUERY_TIMESTAMP = 2
ROOT_SIGNATURE_1_0 = 1
SHADER_MODEL_6_0 = 0x60
SHADER_MODEL_6_4 = 0x64
MOST_GROUPS = 65535
"""Groups of a dispatch on each axis."""
REMOVED = (1 << 64) - 1
"""What a fence of a removed device holds."""
ADAPTER_SOFTWARE = 2
"""DXGI_ADAPTER_FLAG_SOFTWARE."""
PREFER_HIGH_PERFORMANCE = 2
SEGMENT_LOCAL = 0
MICROSOFT = 0x1414
"""The PCI vendor id of the software adapter that comes with Windows."""
DRED_FORCED_ON = 2

CORE_COMPUTE = "248e2800-a793-4724-abaa-23a6de1be090"
"""DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE."""
GRAPHICS = "0c9ece4d-2f6e-4f01-8c96-e89e331b47b1"
"""DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS."""
IID_IDXGI_DEVICE = "54ec77fa-1377-44e6-8c32-88fd5f44c84c"
