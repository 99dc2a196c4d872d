"""Devices in the child of a fork: threads, queues and drivers stayed with the parent."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from crossinfer.core.errors import DeviceLost

if TYPE_CHECKING:
    from crossinfer.hal.device import Device

_watched: weakref.WeakSet[Device] = weakref.WeakSet()


def watch(device: Device) -> None:
    """Have the device lost in a child process; `_leave_to_parent` then lets go of what it has."""
    _watched.add(device)


def unwatch(device: Device) -> None:
    """The device is closed, or was never opened."""
    _watched.discard(device)


def _after_fork() -> None:
    for device in list(_watched):
        device._lock = threading.RLock()  # another thread may have held it
        reason = "the process was forked, and the device stayed with the parent"
        device._lost = DeviceLost(device.info.name, reason)
        device._leave_to_parent()
    _watched.clear()


with contextlib.suppress(AttributeError):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
