"""The reference backend: a HAL device that runs each op's float64 meaning."""

from __future__ import annotations

from crossinfer.backends.reference.device import ReferenceDevice
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo

__all__ = ["ReferenceDevice", "list_devices", "open_device"]


def list_devices() -> list[DeviceInfo]:
    return [ReferenceDevice.describe()]


def open_device(index: int, *, threads: int | None = None) -> Device:
    del index
    return ReferenceDevice(threads=threads)
