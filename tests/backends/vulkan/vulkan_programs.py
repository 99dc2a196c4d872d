"""Small buffers and recordings for the Vulkan backend's tests."""

from __future__ import annotations

import numpy as np

from crossinfer.backends.vulkan import structures
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.core.dtypes import DType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Recording

SIZE = 64


def words(device: Device, fill: int = 0, count: int = SIZE) -> Buffer:
    """A buffer of int32, all `fill`."""
    return device.upload(np.full(count, fill, np.int32), (count,), DType.I32)


def floats(device: Device, fill: float = 1.0) -> Buffer:
    return device.upload(np.full(SIZE, fill, np.float32), (SIZE,), DType.F32)


def swiglu(device: Device, gate: Buffer, up: Buffer, output: Buffer) -> Dispatch:
    """output = silu(gate) · up, on SIZE floats."""
    x = float32(1, SIZE)
    (lowering,) = device.lower(Swiglu(), {"gate": x, "up": x, "output": x})
    views = {"gate": gate.view(), "up": up.view(), "output": output.view()}
    (dispatch,) = lowering.bind(views)
    return dispatch


def chain(device: Device, length: int, parameters: Buffer | None = None) -> Recording:
    """`length` dispatches, each of which reads what the one before wrote."""
    buffers = [floats(device) for _ in range(3)]
    recorder = device.recorder(parameters)
    for number in range(length):
        gate, output = buffers[number % 2], buffers[(number + 1) % 2]
        recorder.dispatch(swiglu(device, gate, buffers[2], output))
    return recorder.finish()


def wait_idle(native: LogicalDevice) -> None:
    """Wait for everything that was submitted to the queue."""
    fence = native.create("Fence", structures.VkFenceCreateInfo())
    native.submit(None, fence, count=0)
    assert native.wait(fence, 10)
