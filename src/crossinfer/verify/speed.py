"""How fast a device decodes: a product of one row with a weight that no cache holds, timed.

Decoding reads every weight once a token, so this tells which of two devices that share a memory is
the faster one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering, Operand, shape_text
from crossinfer.hal.verdicts import VerdictStore

WEIGHT_BYTES = 64 << 20
COLUMNS = 4096
_AT_ONCE = 4
_ROUNDS = 3


def decode_seconds(device: Device, storage: StorageType, verdicts: VerdictStore) -> float:
    """Seconds that a product with WEIGHT_BYTES of weights of this storage takes.

    Measured once, in about a second, and kept among the verdicts; infinite if the device has no
    kernel. Raises OutOfDeviceMemory, DeviceLost.
    """
    what = f"decode {storage.label}, {WEIGHT_BYTES} bytes"
    seconds = verdicts.measured(device.info, what)
    if seconds is None:
        seconds = _measure(device, storage, verdicts)
        verdicts.record_measured(device.info, what, seconds)
    return seconds


def _measure(device: Device, storage: StorageType, verdicts: VerdictStore) -> float:
    rows = max(1, WEIGHT_BYTES // storage.bytes_for((COLUMNS,)))
    operands = {
        "x": float32(1, COLUMNS),
        "weight": Operand((rows, COLUMNS), storage, Role.WEIGHT),
        "output": float32(1, rows),
    }
    lowering = _lowering(device, operands, verdicts)
    if lowering is None:
        return math.inf
    buffers: dict[str, Buffer] = {}
    try:
        for name, operand in operands.items():
            zeros = np.zeros(operand.storage.bytes_for(operand.shape), np.uint8)
            buffers[name] = device.upload(zeros, operand.shape, operand.storage, operand.role)
        for name, size in lowering.scratch.items():
            words = ceil_div(size, DType.I32.block_bytes)
            buffers[name] = device.alloc((words,), DType.I32)
        views = {name: buffer.view() for name, buffer in buffers.items()}
        return _time(device, lowering, views)
    finally:
        for buffer in buffers.values():
            buffer.free()


def _lowering(
    device: Device, operands: Mapping[str, Operand], verdicts: VerdictStore
) -> Lowering | None:
    """The first way that no verdict bars."""
    shape = shape_text(operands)
    for lowering in device.lower(Linear(), operands):
        if not any(verdicts.is_barred(device.info, k, shape) for k in lowering.kernel_names):
            return lowering
    return None


def _time(device: Device, lowering: Lowering, views: Mapping[str, View]) -> float:
    """Seconds of one product: the least of a few submissions of several."""
    recorder = device.recorder()
    for dispatch in lowering.bind(views) * _AT_ONCE:
        recorder.dispatch(dispatch)
    recording = recorder.finish()
    device.submit(recording).wait_through()  # whatever happens at the first time
    times = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        device.submit(recording).wait_through()
        times.append(time.perf_counter() - started)
    return min(times) / _AT_ONCE
