"""Backends by name, imported only when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol, cast

from crossinfer.core.errors import DeviceError, InvalidUse, SettingsError
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.presence import may_have_gpu

# Backends add a line here; nothing else names them.
BACKENDS = {
    "cpu": "crossinfer.backends.cpu",
    "reference": "crossinfer.backends.reference",
    "null": "crossinfer.backends.null",
    "vulkan": "crossinfer.backends.vulkan",
    "d3d12": "crossinfer.backends.d3d12",
}

# What `auto` takes where no GPU is better, best first; and the GPUs that may be, in this order, by
# the backends that it may take them from.
_HOSTS = (DeviceKind.CPU, DeviceKind.REFERENCE)
_GPUS = (DeviceKind.DISCRETE_GPU, DeviceKind.INTEGRATED_GPU)
_GPU_BACKENDS = ("vulkan", "d3d12")


class Backend(Protocol):
    """What a backend's package offers."""

    def list_devices(self) -> list[DeviceInfo]:
        """The devices that this backend can open here; empty if it has no driver."""

    def open_device(self, index: int, *, threads: int | None = None) -> Device:
        """Opens the device `index` of `list_devices()`. Raises the HAL's errors."""


def _backend(name: str) -> Backend:
    return cast(Backend, importlib.import_module(BACKENDS[name]))


class Found(NamedTuple):
    """The devices of this machine, and what kept a backend from listing its own, by backend."""

    devices: list[DeviceInfo]
    problems: dict[str, str]


def find_devices(backends: Iterable[str] | None = None) -> Found:
    """What backends (default: all) can open here. One that fails does not hide the others."""
    found = Found([], {})
    for name in BACKENDS if backends is None else backends:
        try:
            found.devices.extend(_backend(name).list_devices())
        except SettingsError:
            raise
        except Exception as error:  # a driver may fail in any way, and another may work
            found.problems[name] = f"{type(error).__name__}: {error}"
    return found


def list_devices() -> list[DeviceInfo]:
    """Every device that any backend can open on this machine."""
    return find_devices().devices


def gpu_backends() -> list[str]:
    """The backends that `auto` may take a GPU from; none where there is certainly no GPU."""
    return [name for name in _GPU_BACKENDS if name in BACKENDS] if may_have_gpu() else []


def automatic_gpus(backends: Iterable[str] | None = None) -> list[DeviceInfo]:
    """The GPUs that `auto` may take, best first; whoever takes one verifies it before.

    `backends` are some of `gpu_backends()`, which is the default.
    """
    found = find_devices(gpu_backends() if backends is None else backends)
    gpus = [info for info in found.devices if info.kind in _GPUS]
    return sorted(gpus, key=lambda info: _GPUS.index(info.kind))


def automatic_device() -> str:
    """The name of the device that `auto` takes where no GPU is better.

    Raises DeviceError if there is none.
    """
    for kind in _HOSTS:
        for backend in BACKENDS:  # one after another: asking a driver for its devices takes a while
            if backend in _GPU_BACKENDS:
                continue
            for info in find_devices([backend]).devices:
                if info.kind is kind:
                    return info.name
    raise DeviceError("No usable device was found; `crossinfer devices` lists all.")


def open_device(name: str = "auto", *, threads: int | None = None) -> Device:
    """The device called `name`: `reference`, `vulkan`, `vulkan:1`, or `auto` for the host's best.

    No GPU is taken unless it is named, since nobody has verified it here; the engine's `auto` does.
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
