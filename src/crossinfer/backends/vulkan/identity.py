"""Who the devices are: order, names and kinds, and the driver that verdicts go by."""

from __future__ import annotations

from crossinfer.backends.vulkan.constants import DeviceType
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.instance import Instance
from crossinfer.backends.vulkan.physical import PhysicalDevice
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.kernels.source import kernel_code

# Best first; `vulkan` without a number is the first of them. What a virtual machine offers may be
# anything, so it is taken when asked for only.
_KINDS = {
    DeviceType.DISCRETE_GPU: DeviceKind.DISCRETE_GPU,
    DeviceType.INTEGRATED_GPU: DeviceKind.INTEGRATED_GPU,
    DeviceType.VIRTUAL_GPU: DeviceKind.INTEGRATED_GPU,
    DeviceType.OTHER: DeviceKind.SOFTWARE_GPU,
    DeviceType.CPU: DeviceKind.SOFTWARE_GPU,
}
_DISCRETE_STEP_ROWS = 512
"""With 256 rows, an H200 has too few tiles of the narrow matrices of a layer."""


def usable_devices(instance: Instance) -> list[PhysicalDevice]:
    """The devices of Vulkan 1.1 or later that can compute, best first; of equals the larger."""
    found = []
    try:
        handles = instance.physical_devices()
    except VulkanError:
        return []
    for handle in handles:
        try:
            device = PhysicalDevice(instance.functions, handle)
        except VulkanError:
            continue  # a broken driver must not hide the others
        if device.is_usable and device.compute_family() is not None:
            found.append(device)
    ranks = list(_KINDS)
    return sorted(
        found, key=lambda d: (ranks.index(DeviceType(d.type)), -d.heap_sizes[d.device_heap()])
    )


def describe(device: PhysicalDevice, index: int) -> DeviceInfo:
    """The HAL's view of the device number `index` of `usable_devices`."""
    name, version = device.driver()
    kind = _KINDS[DeviceType(device.type)]
    return DeviceInfo(
        name=f"vulkan:{index}" if index else "vulkan",
        kind=kind,
        description=device.name,
        driver=f"{name} {version} [{device.vendor:04x}:{device.device:04x}]",
        memory_bytes=device.memory_budget(),
        vendor_id=int(device.vendor),
        product_id=int(device.device),
        kernel_code=kernel_code(),
        step_rows=_DISCRETE_STEP_ROWS if kind is DeviceKind.DISCRETE_GPU else DeviceInfo.step_rows,
    )
