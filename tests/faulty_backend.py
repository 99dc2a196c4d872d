"""A backend whose devices fail as told, under a name that can be opened again."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Sequence

import pytest

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import OutOfDeviceMemory
from crossinfer.hal import registry
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultyDevice
from crossinfer.hal.info import DeviceInfo, DeviceKind

GPU = DeviceInfo("gpu", DeviceKind.DISCRETE_GPU, "a card that fails as told", "driver 1.0")
"""Its kernels are verified, as those of a real one."""


class FaultyBackend:
    """Devices over `make_inner()` that share `faults`, which count on from device to device."""

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        make_inner: Callable[[], Device] = ReferenceDevice,
        info: DeviceInfo | None = None,
    ) -> None:
        """`info`: who the devices say they are (default: the inner device, but for the name)."""
        self.faults = list(faults)
        self.opened: list[FaultyDevice] = []
        self.refuses_after: int | None = None
        """How many devices can be opened in all."""
        self._make_inner = make_inner
        self._info = info

    def list_devices(self) -> list[DeviceInfo]:
        if self._info is None:
            with self._make_inner() as device:
                self._info = dataclasses.replace(device.info, name="faulty")
        return [self._info]

    def open_device(self, index: int, *, threads: int | None = None) -> Device:
        del index, threads
        if self.refuses_after is not None and len(self.opened) >= self.refuses_after:
            raise OutOfDeviceMemory("The device cannot be opened: it fell off the bus.")
        device = FaultyDevice(self._make_inner(), self.faults, self._info)
        self.opened.append(device)
        return device

    def install(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """Make the devices open as `name`, `name:1` and so on."""
        module = types.ModuleType(f"faulty_backend_{name}")
        module.list_devices = self.list_devices  # type: ignore[attr-defined]
        module.open_device = self.open_device  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(registry.BACKENDS, name, module.__name__)
