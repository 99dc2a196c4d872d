"""Devices that a host made and keeps: we compute on their queue, and destroy nothing of theirs."""

from __future__ import annotations

import contextlib
import dataclasses

from crossinfer.backends.vulkan.device import VulkanDevice
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.identity import describe
from crossinfer.backends.vulkan.instance import find_loader
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.physical import PhysicalDevice
from crossinfer.core.errors import InvalidUse, KernelUnsupported


def from_vulkan(
    instance: int,
    physical_device: int,
    device: int,
    queue_family: int,
    queue: int,
    *,
    queue_lock: contextlib.AbstractContextManager[object] | None = None,
    deadline_s: float = 60.0,
) -> VulkanDevice:
    """A device over handles of the host (numbers), made with Vulkan 1.1 or later by this loader.

    The host keeps all five alive until the device is closed. Queues of Vulkan are not thread-safe:
    either nobody else submits to this one, or every submission holds `queue_lock`, which is entered
    around each of ours (from any thread, never twice at once).

    Raises InvalidUse, KernelUnsupported, OutOfDeviceMemory.
    """
    loader = find_loader()
    if loader is None:
        raise KernelUnsupported("There is no Vulkan loader here.")
    if not all((instance, physical_device, device, queue)):
        raise InvalidUse("A handle of Vulkan is null; give those of a device that is open.")
    try:
        physical = PhysicalDevice(loader.of_instance(instance), physical_device)
        families = [f for f in physical.queue_families if f.index == queue_family]
        if not families or not families[0].can_compute:
            raise InvalidUse(f"The queue family {queue_family} of {physical.name} cannot compute.")
        native = LogicalDevice(
            physical, device, queue_family, queue, owned=False, queue_lock=queue_lock
        )
    except VulkanError as error:
        raise KernelUnsupported(f"The Vulkan device cannot be used: {error}.") from None
    info = dataclasses.replace(describe(physical, 0), name="vulkan")
    return VulkanDevice(native, info, deadline_s=deadline_s)
