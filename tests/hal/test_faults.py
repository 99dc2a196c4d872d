"""The device that fails on purpose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceError, DeviceLost, OutOfDeviceMemory
from crossinfer.graph.op import Op, float32
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.recording import Recording

SIZE = 64


class Bench:
    """Records runs of swiglu and rms_norm over four tensors [1, 64]."""

    def __init__(self, device: Device) -> None:
        self.device = device
        data = np.linspace(-1, 1, SIZE, dtype=np.float32)
        names = ("gate", "up", "x", "weight")
        self.views = {n: device.upload(data, (SIZE,), DType.F32).view() for n in names}
        self.outputs: list[Buffer] = []

    def record(self, *ops: Op) -> Recording:
        """One dispatch an op, each with an output of its own, kept in `outputs`."""
        recorder = self.device.recorder()
        row = float32(1, SIZE)
        for op in ops:
            inputs = {"x": row, "weight": float32(SIZE)}
            inputs = inputs if isinstance(op, RmsNorm) else {"gate": row, "up": row}
            output = self.device.alloc((SIZE,), DType.F32)
            views = {**self.views, "output": output.view()}
            for dispatch in self.device.lower(op, inputs | {"output": row})[0].bind(views):
                recorder.dispatch(dispatch)
            self.outputs.append(output)
        return recorder.finish()

    def run(self, *ops: Op) -> None:
        self.device.submit(self.record(*ops)).wait()

    def results(self) -> list[Array]:
        return [np.frombuffer(self.device.download(one), np.float32) for one in self.outputs]


NORM, GLU = RmsNorm(1e-5), Swiglu()


def faulty(*faults: Fault, deadline_s: float = 60) -> FaultyDevice:
    return FaultyDevice(ReferenceDevice(deadline_s=deadline_s), faults)


def right_results(*ops: Op) -> list[Array]:
    with ReferenceDevice() as device:
        bench = Bench(device)
        bench.run(*ops)
        return bench.results()


def test_without_faults_results_are_those_of_the_inner_device() -> None:
    with faulty() as device:
        bench = Bench(device)
        bench.run(NORM, GLU)
        np.testing.assert_array_equal(bench.results(), right_results(NORM, GLU))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_wrong_result_at_the_nth_dispatch(at: int) -> None:
    ops = (GLU, NORM, GLU, GLU, NORM)
    with faulty(Fault(FaultKind.WRONG_RESULT, "swiglu", at)) as device:
        bench = Bench(device)
        bench.run(*ops)
        pairs = zip(bench.results(), right_results(*ops), strict=True)
        same = [np.array_equal(found, right) for found, right in pairs]
        hit = (0, 2, 3)[at - 1]
        assert same == [number != hit for number in range(5)]
        error = np.abs(bench.results()[hit] - right_results(*ops)[hit])
        assert np.max(error) > 0.01
        bench.run(GLU)  # it strikes once
        np.testing.assert_array_equal(bench.results()[-1], right_results(GLU)[0])


def test_dispatches_are_counted_over_recordings_and_replays() -> None:
    with faulty(Fault(FaultKind.WRONG_RESULT, "swiglu", at=3)) as device:
        bench = Bench(device)
        recording = bench.record(GLU, NORM)
        (right,) = right_results(GLU)
        for run in range(1, 5):
            device.submit(recording).wait()
            assert np.array_equal(bench.results()[0], right) == (run != 3)


def test_kernels_are_meant_by_the_start_of_their_name() -> None:
    with faulty(Fault(FaultKind.WRONG_RESULT, "", at=2)) as device:
        bench = Bench(device)
        bench.run(GLU, NORM)
        glu, norm = right_results(GLU, NORM)
        np.testing.assert_array_equal(bench.results()[0], glu)
        assert not np.array_equal(bench.results()[1], norm)


def test_faults_beside_others_count_on_their_own() -> None:
    lost = Fault(FaultKind.LOST, "swiglu", at=3)
    with faulty(Fault(FaultKind.WRONG_RESULT, "", at=2), lost) as device:
        bench = Bench(device)
        bench.run(GLU, GLU)
        with pytest.raises(DeviceLost):
            bench.run(GLU)


def check_lost(device: Device, recording: Recording, reason: str) -> None:
    """Everything but closing raises the loss."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: device.alloc((1,), DType.F32),
        lambda: device.submit(recording),
        device.recorder,
        device.wait_idle,
    )
    for call in calls:
        with pytest.raises(DeviceLost, match=reason):
            call()
    device.close()


def test_a_lost_device() -> None:
    device = faulty(Fault(FaultKind.LOST, "rms_norm", at=2))
    bench = Bench(device)
    recording = bench.record(GLU, NORM)
    device.submit(recording).wait()
    fence = device.submit(recording)
    with pytest.raises(DeviceLost) as caught:
        fence.wait()
    assert caught.value.device == "reference"
    assert caught.value.in_flight == ("swiglu", "rms_norm")
    assert "while running swiglu, rms_norm: a fault was injected" in str(caught.value)
    check_lost(device, recording, "a fault was injected")


def test_a_device_that_hangs_is_lost_after_its_deadline() -> None:
    device = faulty(Fault(FaultKind.HANG, "rms_norm"), deadline_s=0.05)
    bench = Bench(device)
    glu, both = bench.record(GLU), bench.record(GLU, NORM)
    hanging = device.submit(both)
    behind = device.submit(glu)
    assert not hanging.done
    assert not behind.done
    for fence in (behind, hanging):
        with pytest.raises(DeviceLost, match=r"no answer within 0\.05 seconds"):
            fence.wait()
    check_lost(device, both, "no answer")


@pytest.mark.parametrize("call", ["download", "write", "read_timer", "close"])
def test_whoever_waits_for_a_hanging_device_is_freed(call: str) -> None:
    device = faulty(Fault(FaultKind.HANG, ""), deadline_s=0.05)
    bench = Bench(device)
    timer, view = device.timer(1), bench.views["x"]
    device.submit(bench.record(GLU))
    calls: dict[str, Callable[[], object]] = {
        "download": lambda: device.download(view),
        "write": lambda: device.write(view, b""),
        "read_timer": timer.read,
    }
    if call != "close":
        with pytest.raises(DeviceLost, match="no answer"):
            calls[call]()
    device.close()
    assert device.lost is not None


def test_out_of_memory_passes() -> None:
    with faulty(Fault(FaultKind.OUT_OF_MEMORY, "swiglu", at=2)) as device:
        bench = Bench(device)
        recording = bench.record(GLU)
        device.submit(recording).wait()
        with pytest.raises(OutOfDeviceMemory, match="no memory to run swiglu"):
            device.submit(recording)
        assert not recording.in_flight
        device.submit(recording).wait()
        np.testing.assert_array_equal(bench.results(), right_results(GLU))


def test_the_loss_of_the_inner_device_is_a_loss() -> None:
    inner = ReferenceDevice()
    device = FaultyDevice(inner, ())
    bench = Bench(device)
    recording = bench.record(GLU)
    inner.lose("the driver crashed")
    with pytest.raises(DeviceLost, match="the driver crashed"):
        device.submit(recording).wait()
    check_lost(device, recording, "the driver crashed")


def test_fusions_are_those_of_the_inner_device() -> None:
    with FaultyDevice(ReferenceDevice(fusions=["swiglu"]), ()) as device:
        assert device.fusions == {"swiglu"}


def test_an_executor_is_empty_after_an_error() -> None:
    with faulty(Fault(FaultKind.OUT_OF_MEMORY, "swiglu")) as device:
        bench = Bench(device)
        views = {**bench.views, "output": device.alloc((SIZE,), DType.F32).view()}
        row = float32(1, SIZE)
        executor = Executor(device)
        (dispatch,) = device.lower(GLU, {"gate": row, "up": row, "output": row})[0].bind(views)
        executor.dispatch(dispatch)
        with pytest.raises(DeviceError):
            executor.submit_and_wait()
        executor.submit_and_wait()
        assert np.all(np.isnan(np.frombuffer(device.download(views["output"]), np.float32)))
