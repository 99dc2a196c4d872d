"""The adapter of libvkd3d: whatever its Vulkan device is, which it must be asked about.

libvkd3d takes the best Vulkan device itself; its variable VKD3D_VULKAN_DEVICE names another.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.adapter import Adapter
from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import FeatureLevel
from crossinfer.backends.d3d12.libraries import Direct3D, load, vkd3d_version
from crossinfer.backends.d3d12.structures import (
    VkPhysicalDeviceMemoryProperties,
    VkPhysicalDeviceProperties,
)
from crossinfer.hal.info import DeviceKind

_KINDS = {1: DeviceKind.INTEGRATED_GPU, 2: DeviceKind.DISCRETE_GPU}
"""By VkPhysicalDeviceType; what a virtual machine offers may be anything, and is not preferred."""
_DEVICE_LOCAL = 1
_MOST_VIEW_BYTES = 512 << 20
"""A view is a texel buffer there, of as many elements as every driver of Direct3D 12 takes."""

_UNKNOWN = Adapter(
    key="default",
    kind=DeviceKind.SOFTWARE_GPU,
    description="Direct3D 12 over Vulkan",
    driver="an unknown library",
    vendor_id=None,
    product_id=None,
    memory_bytes=None,
    handle=None,
    most_view_bytes=_MOST_VIEW_BYTES,
)


@functools.cache
def adapters(api: Direct3D) -> list[Adapter]:
    """The one adapter; none without a Vulkan driver that suffices. Asked once, since it takes a
    device to know.
    """
    try:
        device = api.create_device(None, FeatureLevel.LEVEL_11_0)
    except ComError:
        return []
    try:
        return [describe(api, device)]
    finally:
        device.release()


def describe(api: Direct3D, device: ComObject) -> Adapter:
    """The adapter of a device that is open."""
    version, vulkan = vkd3d_version(api.library), load("libvulkan.so.1", Abi.SYSV)
    if version is None or vulkan is None:
        return _UNKNOWN
    get = api.library.handle.vkd3d_get_vk_physical_device  # a plain function of C
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    physical = ctypes.c_void_p(get(device.address))
    properties = VkPhysicalDeviceProperties()
    vulkan.handle.vkGetPhysicalDeviceProperties(physical, ctypes.byref(properties))
    kind = _KINDS.get(properties.deviceType, DeviceKind.SOFTWARE_GPU)
    vendor, product = int(properties.vendorID), int(properties.deviceID)
    return dataclasses.replace(
        _UNKNOWN,
        kind=kind,
        description=properties.deviceName.decode(errors="replace"),
        driver=(
            f"libvkd3d {version[0]}.{version[1]} over Vulkan driver "
            f"{properties.driverVersion:#x} [{vendor:04x}:{product:04x}]"
        ),
        vendor_id=vendor,
        product_id=product,
        memory_bytes=(
            None if kind is DeviceKind.SOFTWARE_GPU else _memory(vulkan.handle, physical)
        ),
    )


def _memory(vulkan: ctypes.CDLL, physical: ctypes.c_void_p) -> int:
    """The largest heap that is the device's own."""
    memory = VkPhysicalDeviceMemoryProperties()
    vulkan.vkGetPhysicalDeviceMemoryProperties(physical, ctypes.byref(memory))
    heaps = memory.memoryHeaps[: memory.memoryHeapCount]
    return max((int(heap.size) for heap in heaps if heap.flags & _DEVICE_LOCAL), default=0)
