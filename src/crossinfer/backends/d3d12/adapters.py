"""The adapters of this machine: what each is called, what kind it is, and how to open it."""

from __future__ import annotations

import ctypes
import dataclasses
import sys

from crossinfer.backends.d3d12 import dxcore, dxgi, vkd3d
from crossinfer.backends.d3d12.adapter import Adapter, luid_key
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.libraries import Direct3D
from crossinfer.backends.d3d12.structures import LUID
from crossinfer.hal.info import DeviceKind


def find_adapters(api: Direct3D) -> list[Adapter]:
    """Those that Direct3D 12 takes, best first."""
    if sys.platform != "win32":
        return vkd3d.adapters(api)
    return merged(dxgi.adapters(api), dxcore.adapters(api))


def adapter_of(api: Direct3D, device: ComObject) -> Adapter | None:
    """The adapter that a device was made on; None if it is none of this machine's."""
    if sys.platform != "win32":
        return vkd3d.describe(api, device)
    luid = LUID()
    device.GetAdapterLuid(ctypes.byref(luid))
    key = luid_key(luid.LowPart, luid.HighPart)
    return next((adapter for adapter in find_adapters(api) if adapter.key == key), None)


def merged(from_dxgi: list[Adapter], from_dxcore: list[Adapter]) -> list[Adapter]:
    """DXGI's order is by the user's preference; what only computes comes after it, software last.

    DXCore lists GPUs too, and knows which of them are integrated.
    """
    known = {adapter.key: adapter for adapter in from_dxcore}
    found = [
        dataclasses.replace(adapter, kind=known[adapter.key].kind)
        if adapter.key in known and adapter.kind is not DeviceKind.SOFTWARE_GPU
        else adapter
        for adapter in from_dxgi
    ]
    keys = {adapter.key for adapter in found}
    found += [a for a in from_dxcore if a.computes_only and a.key not in keys]
    return sorted(found, key=lambda adapter: adapter.kind is DeviceKind.SOFTWARE_GPU)
