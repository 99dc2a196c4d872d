"""Which of the HAL's errors a failed call is."""

from __future__ import annotations

from crossinfer.backends.d3d12.com import ComError
from crossinfer.backends.d3d12.hresult import LOST, OUT_OF_MEMORY
from crossinfer.core.errors import DeviceError, KernelUnsupported, OutOfDeviceMemory


def is_loss(error: ComError) -> bool:
    return error.code in LOST


def device_error(error: ComError, device: str, what: str, in_use: int) -> DeviceError:
    """The HAL's error for a call that failed on a device that is not lost: it cannot `what`."""
    if error.code in OUT_OF_MEMORY:
        return OutOfDeviceMemory(
            f"Device {device} has no memory to {what}: {error}; {in_use} bytes are in use already. "
            "Use a smaller context or a smaller model, or free buffers."
        )
    return KernelUnsupported(f"Device {device} cannot {what}: {error}.")
