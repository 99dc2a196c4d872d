"""Timers: device timestamps, and the timeline of kernels that comes from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossinfer.core.errors import InvalidUse
from crossinfer.core.records import record

if TYPE_CHECKING:
    from crossinfer.hal.device import Device


class Timer:
    """A row of timestamps that recordings write. Made by `Device.timer`."""

    def __init__(self, device: Device, capacity: int, handle: object) -> None:
        self.device = device
        self.capacity = capacity
        self.handle = handle

    def read(self) -> list[float | None]:
        """Every entry in seconds from an origin of the device's own; None where none was written.

        Waits for everything that was submitted before.
        """
        return self.device.read_timer(self)

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two entries. Raises InvalidUse if one does not exist or hold a time."""
        if not {start, end} <= set(range(self.capacity)):
            raise InvalidUse(
                f"The timer has entries 0 to {self.capacity - 1}, not both {start} and {end}."
            )
        times = self.read()
        first, last = times[start], times[end]
        if first is None or last is None:
            raise InvalidUse(f"The timer's entries {start} and {end} are not both written.")
        return last - first


@record
class TimedKernel:
    """One run of a kernel on a device: start and duration in seconds."""

    name: str
    label: str
    device: str
    start_s: float
    duration_s: float
