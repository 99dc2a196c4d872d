"""Opens the devices that the backend lists."""

from __future__ import annotations

from crossinfer.backends.vulkan.device import VulkanDevice
from crossinfer.backends.vulkan.errors import VulkanError, device_error
from crossinfer.backends.vulkan.identity import describe, usable_devices
from crossinfer.backends.vulkan.instance import shared_instance
from crossinfer.backends.vulkan.logical import create_logical_device
from crossinfer.core.errors import InvalidUse


def open_vulkan(
    index: int = 0, *, validation: bool | None = None, deadline_s: float = 60.0
) -> VulkanDevice:
    """The device `index` of `list_devices()`.

    `validation`: whether the validation layers watch it; the default is the setting. Raises
    InvalidUse, and what `VulkanDevice` raises.
    """
    instance = shared_instance(validation)
    found = usable_devices(instance) if instance is not None else []
    if instance is None or index not in range(len(found)):
        raise InvalidUse(f"There is no Vulkan device {index}; {len(found)} were found.")
    info = describe(found[index], index)
    try:
        native = create_logical_device(found[index])
    except VulkanError as error:
        raise device_error(error, info.name, "open", in_use=0) from None
    return VulkanDevice(native, info, messenger=instance.messenger, deadline_s=deadline_s)
