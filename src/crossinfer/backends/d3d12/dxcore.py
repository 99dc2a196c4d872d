"""Adapters that compute, as DXCore lists them: GPUs once more, and NPUs.

An NPU takes Direct3D 12 at feature level 1.0 CORE, with compute queues only. Whether its compiler
takes our kernels shows when they are tried.
"""

from __future__ import annotations

import ctypes
from typing import Any

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.adapter import Adapter, driver_name, luid_key
from crossinfer.backends.d3d12.com import ComError, ComObject, guid
from crossinfer.backends.d3d12.constants import (
    CORE_COMPUTE,
    GRAPHICS,
    AdapterProperty,
    FeatureLevel,
)
from crossinfer.backends.d3d12.interfaces import (
    IDXCoreAdapter,
    IDXCoreAdapterFactory,
    IDXCoreAdapterList,
)
from crossinfer.backends.d3d12.libraries import Direct3D, load
from crossinfer.backends.d3d12.structures import LUID, DXCoreHardwareID
from crossinfer.hal.info import DeviceKind

_CORE_COMPUTE = guid(CORE_COMPUTE)
_GRAPHICS = guid(GRAPHICS)


def adapters(api: Direct3D) -> list[Adapter]:
    """Those of this machine; empty on a Windows that has no DXCore."""
    library = load("dxcore.dll", Abi.WINDOWS)
    if library is None:
        return []
    try:
        factory = library.get("DXCoreCreateAdapterFactory", IDXCoreAdapterFactory)
    except (ComError, AttributeError):
        return []
    return listed(api, factory)


def listed(api: Direct3D, factory: ComObject) -> list[Adapter]:
    """Each hardware adapter of the factory once; those that only compute if they can be opened."""
    try:
        every = factory.create("CreateAdapterList", IDXCoreAdapterList, 1, _CORE_COMPUTE)
    except ComError:
        return []
    found: dict[str, Adapter] = {}
    for number in range(every.GetAdapterCount()):
        try:
            adapter = _describe(every.create("GetAdapter", IDXCoreAdapter, number))
        except ComError:
            continue  # one that cannot tell who it is hides no other
        if adapter is None or adapter.key in found or adapter.handle is None:
            continue
        if not adapter.computes_only or api.supports(adapter.handle, adapter.level):
            found[adapter.key] = adapter
    return list(found.values())


def _describe(handle: ComObject) -> Adapter | None:
    """None for one that is no hardware, or gone."""
    if not handle.IsValid() or not _flag(handle, AdapterProperty.IS_HARDWARE):
        return None
    luid = _value(handle, AdapterProperty.INSTANCE_LUID, LUID())
    hardware = _value(handle, AdapterProperty.HARDWARE_ID, DXCoreHardwareID())
    version = _number(handle, AdapterProperty.DRIVER_VERSION)
    draws = handle.IsAttributeSupported(_GRAPHICS)
    integrated = _flag(handle, AdapterProperty.IS_INTEGRATED)
    usual = DeviceKind.INTEGRATED_GPU if integrated else DeviceKind.DISCRETE_GPU
    memory = _number(handle, AdapterProperty.DEDICATED_ADAPTER_MEMORY)
    if integrated:
        memory += _number(handle, AdapterProperty.SHARED_SYSTEM_MEMORY)
    return Adapter(
        key=luid_key(luid.LowPart, luid.HighPart),
        kind=usual if draws else DeviceKind.NPU,
        description=_description(handle),
        driver=driver_name(version, hardware.vendorID, hardware.deviceID),
        vendor_id=hardware.vendorID,
        product_id=hardware.deviceID,
        memory_bytes=memory or None,
        handle=handle,
        level=FeatureLevel.LEVEL_11_0 if draws else FeatureLevel.CORE_1_0,
    )


def _value(handle: ComObject, name: AdapterProperty, memory: Any) -> Any:
    """A property, read into `memory`. Raises ComError."""
    handle.GetProperty(name, ctypes.sizeof(memory), ctypes.byref(memory))
    return memory


def _flag(handle: ComObject, name: AdapterProperty) -> bool:
    return bool(_value(handle, name, ctypes.c_bool()).value)


def _number(handle: ComObject, name: AdapterProperty) -> int:
    """A property that an adapter need not have; 0 then."""
    try:
        return int(_value(handle, name, ctypes.c_uint64()).value)
    except ComError:
        return 0


def _description(handle: ComObject) -> str:
    size = ctypes.c_size_t()
    handle.GetPropertySize(AdapterProperty.DRIVER_DESCRIPTION, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    handle.GetProperty(AdapterProperty.DRIVER_DESCRIPTION, size.value, text)
    return text.value.decode(errors="replace")
