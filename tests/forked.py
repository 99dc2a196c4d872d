"""What a child of a fork may do with a device of its parent: nothing."""

from __future__ import annotations

import os
import signal

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.recording import Recording


def check_fork(device: Device, buffer: Buffer, fill: int, recording: Recording) -> None:
    """A child is told in every call that it has no device; the parent goes on.

    `buffer` is of int32, all `fill`; `recording` is submitted and not waited for.
    """
    fence = device.submit(recording)
    child = os.fork()
    if child == 0:
        _child(device, buffer, fence)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    fence.wait()
    assert np.all(np.frombuffer(device.download(buffer), np.int32) == fill)


def _child(device: Device, buffer: Buffer, fence: Fence) -> None:
    code = 1
    try:
        signal.alarm(10)
        told = 0
        for call in (
            lambda: device.download(buffer),
            fence.wait,
            lambda: device.alloc((1,), DType.I32),
        ):
            try:
                call()
            except DeviceLost as error:
                told += "forked" in str(error)
        device.close()
        code = 0 if told == 3 else 2
    finally:
        os._exit(code)
