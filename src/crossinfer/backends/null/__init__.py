"""The null backend: checks and records like any device, and executes nothing.

For tests of everything but results, and to see a model's plan without its weights in memory.
"""

from __future__ import annotations

from crossinfer.backends.null.device import NullDevice
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo

__all__ = ["NullDevice", "list_devices", "open_device"]


def list_devices() -> list[DeviceInfo]:
    return [NullDevice.describe()]


def open_device(index: int, *, threads: int | None = None) -> Device:
    del index, threads
    return NullDevice()
