"""What is special to the null device."""

from __future__ import annotations

from crossinfer.backends.null import NullDevice
from crossinfer.core.dtypes import DType
from crossinfer.hal.kernel import OpDescription
from crossinfer.verify.cases import all_cases


class Unknown(OpDescription):
    name = "unknown"


def test_it_has_a_kernel_for_every_op() -> None:
    with NullDevice() as device:
        for case in all_cases():
            (lowering,) = device.lower(case.op, case.operands())
            assert lowering.kernel_names == (case.variant,)
        assert device.lower(Unknown(), {}) == ()


def test_downloads_are_zeros() -> None:
    with NullDevice() as device:
        buffer = device.upload(b"\1" * 100, (25,), DType.I32)
        assert device.download(buffer) == bytes(256)


def test_timestamps_are_zero_once_submitted() -> None:
    with NullDevice() as device:
        timer, recorder = device.timer(3), device.recorder()
        recorder.timestamp(timer, 0)
        recorder.timestamp(timer, 2)
        recording = recorder.finish()
        assert timer.read() == [None, None, None]
        device.submit(recording).wait()
        assert timer.read() == [0.0, None, 0.0]
