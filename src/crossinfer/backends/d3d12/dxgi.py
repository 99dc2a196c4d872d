"""Adapters that draw, as DXGI lists them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.adapter import Adapter, driver_name, luid_key
from crossinfer.backends.d3d12.com import ComError, ComObject, guid, taken
from crossinfer.backends.d3d12.constants import (
    ADAPTER_SOFTWARE,
    IID_IDXGI_DEVICE,
    MICROSOFT,
    PREFER_HIGH_PERFORMANCE,
    SEGMENT_LOCAL,
    Feature,
    FeatureLevel,
)
from crossinfer.backends.d3d12.interfaces import (
    IDXGIAdapter1,
    IDXGIAdapter3,
    IDXGIFactory1,
    IDXGIFactory6,
)
from crossinfer.backends.d3d12.libraries import Direct3D, load
from crossinfer.backends.d3d12.structures import (
    D3D12_FEATURE_DATA_ARCHITECTURE,
    DXGI_ADAPTER_DESC1,
    DXGI_QUERY_VIDEO_MEMORY_INFO,
)
from crossinfer.hal.info import DeviceKind

_MOST_ADAPTERS = 64
"""Where an enumeration that never ends is given up."""
_DEVICE_IID = guid(IID_IDXGI_DEVICE)


def adapters(api: Direct3D) -> list[Adapter]:
    """Those of this machine that Direct3D 12 takes, the user's preference first."""
    library = load("dxgi.dll", Abi.WINDOWS)
    if library is None:
        return []
    try:
        factory = library.get("CreateDXGIFactory1", IDXGIFactory1)
    except (ComError, AttributeError):
        return []
    return listed(api, factory)


def listed(api: Direct3D, factory: ComObject) -> list[Adapter]:
    """Each adapter of the factory once; one that cannot tell who it is hides no other."""
    found: dict[str, Adapter] = {}
    for handle in _handles(factory):
        try:
            adapter = _describe(api, handle)
        except ComError:
            continue
        if adapter.key not in found and api.supports(handle, adapter.level):
            found[adapter.key] = adapter
    return list(found.values())


def _handles(factory: ComObject) -> Iterator[ComObject]:
    by_preference = factory.query(IDXGIFactory6)
    for number in range(_MOST_ADAPTERS):
        try:
            if by_preference is not None:
                yield by_preference.create(
                    "EnumAdapterByGpuPreference", IDXGIAdapter1, number, PREFER_HIGH_PERFORMANCE
                )
            else:
                made = ctypes.c_void_p()
                factory.EnumAdapters1(number, ctypes.byref(made))
                yield ComObject(taken(made), IDXGIAdapter1, factory.abi)
        except ComError:
            return  # DXGI_ERROR_NOT_FOUND: that was the last


def _describe(api: Direct3D, handle: ComObject) -> Adapter:
    desc = DXGI_ADAPTER_DESC1()
    handle.GetDesc1(ctypes.byref(desc))
    is_software = bool(desc.Flags & ADAPTER_SOFTWARE) or desc.VendorId == MICROSOFT
    if is_software:
        kind = DeviceKind.SOFTWARE_GPU
    elif _shares_memory(api, handle):
        kind = DeviceKind.INTEGRATED_GPU
    else:
        kind = DeviceKind.DISCRETE_GPU
    return Adapter(
        key=luid_key(desc.AdapterLuid.LowPart, desc.AdapterLuid.HighPart),
        kind=kind,
        description=_text(desc.Description),
        driver=driver_name(_driver_version(handle), desc.VendorId, desc.DeviceId),
        vendor_id=desc.VendorId,
        product_id=desc.DeviceId,
        memory_bytes=None if is_software else _memory(handle, desc, kind),
        handle=handle,
    )


def _shares_memory(api: Direct3D, handle: ComObject) -> bool:
    """Whether GPU and CPU have one memory. Raises ComError if the device cannot be made."""
    device = api.create_device(handle, FeatureLevel.LEVEL_11_0)
    try:
        found = D3D12_FEATURE_DATA_ARCHITECTURE()
        device.CheckFeatureSupport(Feature.ARCHITECTURE, ctypes.byref(found), ctypes.sizeof(found))
        return bool(found.UMA)
    finally:
        device.release()


def _memory(handle: ComObject, desc: DXGI_ADAPTER_DESC1, kind: DeviceKind) -> int:
    """What this process may take now, or what there is."""
    counter = handle.query(IDXGIAdapter3)
    if counter is not None:
        info = DXGI_QUERY_VIDEO_MEMORY_INFO()
        try:
            counter.QueryVideoMemoryInfo(0, SEGMENT_LOCAL, ctypes.byref(info))
        except ComError:
            info.Budget = 0
        if info.Budget:
            return int(info.Budget)
    shared = desc.SharedSystemMemory if kind is DeviceKind.INTEGRATED_GPU else 0
    return int(desc.DedicatedVideoMemory + shared)


def _driver_version(handle: ComObject) -> int:
    version = ctypes.c_int64()
    try:
        handle.CheckInterfaceSupport(_DEVICE_IID, ctypes.byref(version))
    except ComError:
        return 0
    return version.value


def _text(units: ctypes.Array[ctypes.c_uint16]) -> str:
    """UTF-16 up to the first zero."""
    return bytes(units).decode("utf-16-le", errors="replace").split("\0", 1)[0]
