"""Memory of the host from which a device copies by itself, beside what its queue runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossinfer.core.errors import InvalidUse
from crossinfer.hal.buffer import View
from crossinfer.hal.recording import Recording

if TYPE_CHECKING:
    from crossinfer.core.dtypes import Array
    from crossinfer.hal.device import Device


class HostMemory:
    """Made by `Device.host_memory`. `data` is uint8 [size], the host's to fill.

    It is not part of the device's memory. `handle` is the backend's.
    """

    def __init__(self, device: Device, data: Array, handle: object, label: str) -> None:
        self.device = device
        self.data = data
        self.handle = handle
        self.label = label
        self.freed = False

    def __repr__(self) -> str:
        return f"HostMemory({self.label or 'unnamed'}, {self.data.size} bytes)"

    def free(self) -> None:
        """Give the memory back. Raises InvalidUse while a copy out of it runs."""
        self.device.free_host_memory(self)


class HostCopy(Recording):
    """A copy of host memory to a view, tracked like a recording: it has a fence and a buffer."""

    def __init__(self, source: HostMemory, target: View) -> None:
        super().__init__(target.buffer.device, (), None)
        self.source = source
        self.target = target
        self.buffers = frozenset({target.buffer})


def check_copy(source: HostMemory, target: View, device: Device) -> None:
    """Raises InvalidUse unless `device` may copy the start of `source` over all of `target`."""
    if source.device is not device:
        raise InvalidUse(f"{source} belongs to device {source.device.info.name}.")
    if source.freed:
        raise InvalidUse(f"{source} was freed.")
    device.check_buffer(target.buffer)
    if target.size > source.data.size:
        raise InvalidUse(f"{target.size} bytes were to be copied out of {source}.")
