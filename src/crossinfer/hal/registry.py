"""Backends by name, imported only when they are asked for."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from crossinfer.core.errors import DeviceError, InvalidUse
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo, DeviceKind

# Backends add a line here; nothing else names them.
BACKENDS = {
    "cpu": "crossinfer.backends.cpu",
    "reference": "crossinfer.backends.reference",
    "null": "crossinfer.backends.null",
    "vulkan": "crossinfer.backends.vulkan",
}

# What `auto` takes, best first. GPUs join when the engine verifies their kernels before it uses
# them; until then they are named.
_AUTOMATIC = (DeviceKind.CPU, DeviceKind.REFERENCE)


class Backend(Protocol):
    """What a backend's package offers."""

    def list_devices(self) -> list[DeviceInfo]:
        """The devices that this backend can open here; empty if it has no driver."""

    def open_device(self, index: int, *, threads: int | None = None) -> Device:
        """Opens the device `index` of `list_devices()`. Raises the HAL's errors."""


def _backend(name: str) -> Backend:
    return cast(Backend, importlib.import_module(BACKENDS[name]))


def list_devices() -> list[DeviceInfo]:
    """Every device that any backend can open on this machine."""
    return [info for name in BACKENDS for info in _backend(name).list_devices()]


def automatic_device() -> str:
    """The name of the device that `auto` takes. Raises DeviceError if there is none to take."""
    for kind in _AUTOMATIC:
        for backend in BACKENDS:  # one after another: asking a driver for its devices takes a while
            for info in _backend(backend).list_devices():
                if info.kind is kind:
                    return info.name
    raise DeviceError("No usable device was found; `crossinfer devices` lists all.")


def open_device(name: str = "auto", *, threads: int | None = None) -> Device:
    """The device called `name`: `reference`, `vulkan`, `vulkan:1`, or `auto` for the best.

    `threads` bounds the worker threads of devices that compute on the CPU. Raises InvalidUse for an
    unknown name, and what the backend raises.
    """
    if name == "auto":
        name = automatic_device()
    backend_name, colon, number = name.partition(":")
    if backend_name not in BACKENDS or (colon and not number.isdecimal()):
        raise InvalidUse(
            f"There is no device {name!r}; the backends are {', '.join(BACKENDS)} "
            "(with `:1` and so on for the second device of one), or auto."
        )
    backend, index = _backend(backend_name), int(number or 0)
    found = backend.list_devices()
    if index >= len(found):
        raise InvalidUse(
            f"There is no device {name!r}: the backend {backend_name} finds {len(found)} here."
        )
    return backend.open_device(index, threads=threads)
