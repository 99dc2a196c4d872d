"""A call that failed, and which of the HAL's errors that is."""

from __future__ import annotations

from crossinfer.backends.vulkan.constants import OUT_OF_MEMORY, Result, result_name
from crossinfer.core.errors import DeviceError, KernelUnsupported, OutOfDeviceMemory


class VulkanError(Exception):
    """A function of Vulkan returned an error. Stays inside this backend."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {result_name(code)}")
        self.function = function
        self.code = code

    @property
    def is_loss(self) -> bool:
        return self.code == Result.VK_ERROR_DEVICE_LOST

    @property
    def is_out_of_memory(self) -> bool:
        return self.code in OUT_OF_MEMORY


def check(function: str, code: int) -> None:
    """Raises VulkanError if `code`, what `function` returned, is an error."""
    if code < 0:
        raise VulkanError(function, code)


def device_error(error: VulkanError, device: str, what: str, in_use: int) -> DeviceError:
    """The HAL's error for a call that failed on a device that is not lost: it cannot `what`."""
    if error.is_out_of_memory:
        return OutOfDeviceMemory(
            f"Device {device} has no memory to {what}: {error}; {in_use} bytes are in use already. "
            "Use a smaller context or a smaller model, or free buffers."
        )
    return KernelUnsupported(f"Device {device} cannot {what}: {error}.")
