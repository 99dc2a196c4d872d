"""The Vulkan backend: the shared HLSL kernels on any driver of Vulkan 1.1 or later.

The binding is plain ctypes over the system's loader (`functions`, `structures`).
"""

from __future__ import annotations

from crossinfer.backends.vulkan.device import VulkanDevice
from crossinfer.backends.vulkan.identity import describe, usable_devices
from crossinfer.backends.vulkan.injection import from_vulkan
from crossinfer.backends.vulkan.instance import shared_instance
from crossinfer.backends.vulkan.opening import open_vulkan
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo

__all__ = ["VulkanDevice", "from_vulkan", "list_devices", "open_device", "open_vulkan"]


def list_devices() -> list[DeviceInfo]:
    """Every device of Vulkan 1.1 or later, the best first; empty without a loader or a driver."""
    instance = shared_instance()
    if instance is None:
        return []
    return [describe(device, index) for index, device in enumerate(usable_devices(instance))]


def open_device(index: int, *, threads: int | None = None) -> Device:
    del threads
    return open_vulkan(index)
