"""The CPU as an AQL agent: a ring of packets, native worker threads, generated kernels."""

from __future__ import annotations

from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.processor import processor_text
from crossinfer.backends.cpu.queue import usable_cores
from crossinfer.core.errors import KernelUnsupported
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo
from crossinfer.jit.target import host_targets

__all__ = ["CpuDevice", "list_devices", "open_device"]


def list_devices() -> list[DeviceInfo]:
    """The CPU, unless it is of a kind that the kernels don't know."""
    try:
        processor_text(host_targets()[0])
    except KernelUnsupported:
        return []
    return [CpuDevice.describe()]


def open_device(index: int, *, threads: int | None = None) -> Device:
    """`threads` bounds the workers. There are no more than cores: the others would take turns with
    them, and each barrier would wait for a turn of every one.
    """
    del index
    return CpuDevice(threads=None if threads is None else min(threads, usable_cores()))
