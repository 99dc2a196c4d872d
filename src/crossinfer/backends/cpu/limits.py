"""A CPU's limits, measured on the workers of a device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

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
from crossinfer.hal.limits import Limits, Products
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
    groups = _READ_MEMORY // READ_BYTES
    read = _best_seconds(device, target, "read_limit", build_read, _READ_MEMORY, groups)
    return Limits(
        _READ_MEMORY / read,
        _peak(device, target, Products.INTEGER),
        _peak(device, target, Products.FLOAT),
        None if short is None else _peak(device, short, Products.SHORT),
    )


def _peak(device: Device, target: Target, products: Products) -> float:
    """Operations a second."""
    name = f"{products.name.lower()}_limit"
    build = functools.partial(build_peak, products=products)
    seeds = 4 * target.lanes() + _GROUPS
    seconds = _best_seconds(device, target, name, build, seeds, _GROUPS)
    return _GROUPS * peak_operations(target, products) / seconds


def _best_seconds(
    device: Device,
    target: Target,
    name: str,
    build: Callable[[Target, str], str],
    data_bytes: int,
    groups: int,
) -> float:
    """The shortest time of a kernel over `data_bytes` of zeros."""
    kernel = kernel_library(target).get(name, name, lambda given: build(given, name))
    data = device.upload(bytes(data_bytes), (data_bytes // 4,), DType.I32, label="limits")
    out = device.alloc((PEAK_CHAINS,), DType.I32, label="limits")
    try:
        recorder = device.recorder()
        bindings = (Binding(data.view(), Access.READ), Binding(out.view(), Access.WRITE))
        recorder.dispatch(Dispatch(kernel, bindings, grid=(groups, 1, 1)))
        recording = recorder.finish()
        times = []
        for _ in range(_REPEATS):
            started = time.perf_counter()
            device.submit(recording).wait()
            times.append(time.perf_counter() - started)
        return min(times)
    finally:
        data.free()
        out.free()
