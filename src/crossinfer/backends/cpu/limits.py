"""A CPU's limits, measured on the workers of a device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import closing

from crossinfer.backends.cpu.kernels.limits import (
    PEAK_CHAINS,
    READ_BYTES,
    build_peak,
    build_read,
    peak_operations,
)
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.core.dtypes import DType
from crossinfer.hal.buffer import Access, Binding
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.limits import Limits, Products, ReadProbe
from crossinfer.jit.target import Target

_READ_MEMORY = 256 << 20
"""More than the caches hold."""
_GROUPS = 256
"""Workgroups of a peak kernel: enough for any number of workers, since they take them in turn."""
_REPEATS = 5


def measure_limits(device: Device, target: Target, short: Target | None = None) -> Limits:
    """The best of a few runs of each kernel; bfloat16 with the target `short`, if there is one.

    Raises OutOfDeviceMemory, DeviceLost.
    """
    return Limits(
        _peak(device, target, Products.INTEGER),
        _peak(device, target, Products.FLOAT),
        None if short is None else _peak(device, short, Products.SHORT),
    )


class CpuReadProbe(ReadProbe):
    """All workers add up the same memory, which no cache holds."""

    def __init__(self, device: Device, target: Target) -> None:
        """Raises OutOfDeviceMemory, DeviceLost."""
        groups = _READ_MEMORY // READ_BYTES
        self._kernel = _LimitKernel(device, target, "read_limit", build_read, _READ_MEMORY, groups)

    def bytes_per_s(self) -> float:
        return _READ_MEMORY / self._kernel.seconds()

    def close(self) -> None:
        self._kernel.close()


def _peak(device: Device, target: Target, products: Products) -> float:
    """Operations a second."""
    name = f"{products.name.lower()}_limit"
    build = functools.partial(build_peak, products=products)
    seeds = 4 * target.lanes() + _GROUPS
    with closing(_LimitKernel(device, target, name, build, seeds, _GROUPS)) as kernel:
        seconds = min(kernel.seconds() for _ in range(_REPEATS))
    return _GROUPS * peak_operations(target, products) / seconds


class _LimitKernel:
    """A kernel over memory of zeros, recorded to be run again and again."""

    def __init__(
        self,
        device: Device,
        target: Target,
        name: str,
        build: Callable[[Target, str], str],
        data_bytes: int,
        groups: int,
    ) -> None:
        kernel = kernel_library(target).get(name, name, lambda given: build(given, name))
        self._device = device
        self._data = device.upload(bytes(data_bytes), (data_bytes // 4,), DType.I32, label="limits")
        try:
            self._out = device.alloc((PEAK_CHAINS,), DType.I32, label="limits")
        except BaseException:
            self._data.free()
            raise
        recorder = device.recorder()
        bindings = (
            Binding(self._data.view(), Access.READ),
            Binding(self._out.view(), Access.WRITE),
        )
        recorder.dispatch(Dispatch(kernel, bindings, grid=(groups, 1, 1)))
        self._recording = recorder.finish()

    def seconds(self) -> float:
        """Of one run."""
        started = time.perf_counter()
        self._device.submit(self._recording).wait_through()
        return time.perf_counter() - started

    def close(self) -> None:
        self._data.free()
        self._out.free()
