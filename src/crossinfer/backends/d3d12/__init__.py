"""The Direct3D 12 backend: the shared HLSL kernels on Windows' drivers, and on Linux over libvkd3d.

The binding is plain ctypes over COM objects (`com`, `interfaces`, `structures`).
"""

from __future__ import annotations

from crossinfer.backends.d3d12.device import D3D12Device
from crossinfer.backends.d3d12.opening import list_devices, open_d3d12
from crossinfer.hal.device import Device

__all__ = ["D3D12Device", "list_devices", "open_d3d12", "open_device"]


def open_device(index: int, *, threads: int | None = None) -> Device:
    del threads
    return open_d3d12(index)
