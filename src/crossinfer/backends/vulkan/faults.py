"""Why a device was lost, in the driver's words where it has some."""

from __future__ import annotations

import ctypes

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.logical import LogicalDevice

_MOST_ENTRIES = 8
"""Of each kind, in the sentence."""


def loss_reason(device: LogicalDevice, error: VulkanError) -> str:
    """The reason for `DeviceLost`: the call that told, and what VK_EXT_device_fault knows."""
    details = _fault_text(device) if device.tells_faults else ""
    return f"{error} ({details})" if details else str(error)


def _fault_text(device: LogicalDevice) -> str:
    call = device.functions.vkGetDeviceFaultInfoEXT
    counts = vk.VkDeviceFaultCountsEXT()
    if call(device.handle, ctypes.byref(counts), None) < 0:
        return ""
    counts.vendorBinarySize = 0
    counts.addressInfoCount = min(counts.addressInfoCount, _MOST_ENTRIES)
    counts.vendorInfoCount = min(counts.vendorInfoCount, _MOST_ENTRIES)
    addresses = (vk.VkDeviceFaultAddressInfoEXT * counts.addressInfoCount)()
    vendors = (vk.VkDeviceFaultVendorInfoEXT * counts.vendorInfoCount)()
    info = vk.VkDeviceFaultInfoEXT(pAddressInfos=addresses, pVendorInfos=vendors)
    if call(device.handle, ctypes.byref(counts), ctypes.byref(info)) < 0:
        return ""
    parts = [info.description.decode(errors="replace")]
    parts += [
        f"{vendor.description.decode(errors='replace')} code {vendor.vendorFaultCode:#x}"
        for vendor in vendors[: counts.vendorInfoCount]
    ]
    parts += [
        f"address {address.reportedAddress:#x}" for address in addresses[: counts.addressInfoCount]
    ]
    return "; ".join(part for part in parts if part)
