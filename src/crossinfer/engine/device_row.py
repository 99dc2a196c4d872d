"""The devices of a model, in order of preference: those that were opened for it, and the caller's.

What was opened by name can be opened again when it is lost. What the caller made is the caller's
to make again, and to close.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from crossinfer.core.errors import DeviceError, RequestError
from crossinfer.core.records import record
from crossinfer.core.settings import read_settings
from crossinfer.hal.device import Device
from crossinfer.hal.registry import automatic_device, open_device

AUTO = "auto"

Devices = str | Device | Sequence[str | Device]


@record
class Opened:
    """A device, and the name that opens it again; None if the caller made it."""

    device: Device
    name: str | None


class Choice(NamedTuple):
    """What `auto` took, opened, and why nothing better, in sentences."""

    members: list[Opened]
    reasons: list[str]


OpenAutomatic = Callable[[int | None], Choice]
"""Opens what `auto` takes, with so many threads."""


class DeviceRow:
    """Devices, most preferred first. Used by one thread at a time."""

    def __init__(
        self, members: Iterable[Opened], threads: int | None, reasons: Iterable[str] = ()
    ) -> None:
        """`reasons` says why `auto`, where it was asked for, took nothing better."""
        self._members = list(members)
        self._threads = threads
        self.reasons = tuple(reasons)
        self.may_start_without = False
        """Whether a device without memory for the model may be left out: nobody asked for it."""

    @property
    def devices(self) -> list[Device]:
        return [member.device for member in self._members]

    def reopen(self, device: Device) -> bool:
        """Close a device and open it again in its place; False if it is the caller's.

        Raises DeviceError if it can't be opened; it stays in the row, closed.
        """
        place = self.devices.index(device)
        name = self._members[place].name
        if name is None:
            return False
        with contextlib.suppress(DeviceError):
            device.close()
        self._members[place] = Opened(open_device(name, threads=self._threads), name)
        return True

    def drop(self, device: Device) -> None:
        """Take a device out of the row, and close it unless it is the caller's."""
        place = self.devices.index(device)
        _close([self._members.pop(place)])

    def close(self) -> None:
        """Close what was opened here."""
        _close(self._members)


def open_row(
    wanted: Devices, threads: int | None, open_automatic: OpenAutomatic | None = None
) -> DeviceRow:
    """The devices `wanted`, opened where they are names.

    `auto` stands for what the setting `device` names, one or several with commas between; where
    that is `auto` too, for what `open_automatic` gives (default: what `open_device` takes).
    Raises DeviceError, RequestError.
    """
    if threads is not None and threads < 1:
        raise RequestError(f"threads is {threads}; it must be at least 1.")
    settings = read_settings()
    threads = threads or settings.threads
    members: list[Opened] = []
    reasons: list[str] = []
    try:
        for one in [wanted] if isinstance(wanted, str | Device) else wanted:
            if isinstance(one, Device):
                members.append(Opened(one, None))
                continue
            for given in settings.device.split(",") if one == AUTO else [one]:
                name = given.strip()
                if name == AUTO and open_automatic is not None:
                    choice = open_automatic(threads)
                    members += choice.members
                    reasons += choice.reasons
                    continue
                name = automatic_device() if name == AUTO else name
                members.append(Opened(open_device(name, threads=threads), name))
    except BaseException:
        _close(members)
        raise
    return DeviceRow(members, threads, reasons)


def _close(members: Iterable[Opened]) -> None:
    with contextlib.ExitStack() as stack:
        for member in members:
            if member.name is not None:
                stack.callback(member.device.close)
