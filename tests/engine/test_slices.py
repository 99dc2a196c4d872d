"""Steps in slices: the same bits as without, and never more on a device than was allowed."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.d3d12_driver import open_d3d12_or_skip
from tests.steps import CONTEXT, LIMITS
from tests.tiny_models import TinyModels
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceLost
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.engine.slice_cut import Bounds
from crossinfer.engine.slices import SlicedSegment, SliceGate
from crossinfer.engine.step import StepRunner
from crossinfer.formats.model_file import open_model_file
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.fence import Fence
from crossinfer.hal.recording import DispatchCommand, Recording
from crossinfer.hal.registry import open_device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model, load_model

PROMPT = list(range(30, 51))
FIRST = 6
"""Tokens of the first chunk: few, since software drivers compile kernels of many rows for long."""


class Watch:
    """Counts what a device is given, and looks whether something else still runs on it."""

    def __init__(self, device: Device) -> None:
        self.submissions: list[int] = []
        self.overlapping = 0
        self._submit = device.submit
        self._last: Fence | None = None
        device.submit = self._watched  # type: ignore[method-assign]

    def _watched(self, recording: Recording, params: bytes = b"") -> Fence:
        count = sum(isinstance(command, DispatchCommand) for command in recording.commands)
        self.submissions.append(count)
        self.overlapping += self._last is not None and not self._last.done
        self._last = self._submit(recording, params)
        return self._last


class Steps:
    """Runs steps on a thread, as the engine does, while the test makes the calls of a host."""

    def __init__(self, model: Model, devices: list[Device], gate: SliceGate | None) -> None:
        self.gate = gate
        self.runner = StepRunner(
            model,
            devices,
            VerdictStore(None),
            context=CONTEXT,
            kv_blocks=40,
            kv_dtype=DType.F32,
            limits=LIMITS,
            gate=gate,
        )

    def logits(self, start: int, end: int, host: Callable[[], Any] = lambda: None) -> Array:
        """The logits of PROMPT[start:end]; `host` is called again and again meanwhile."""
        chunk = Chunk(PROMPT[start:end], end, range(1, 3), range(end - start))
        outcomes: list[Any] = []

        def run() -> None:
            try:
                outcomes.append(self.runner.run(Batch((chunk,))).logits)
            except Exception as error:
                outcomes.append(error)

        worker = threading.Thread(target=run)
        worker.start()
        deadline = time.monotonic() + 60
        while worker.is_alive():
            assert time.monotonic() < deadline, "the step does not end"
            host()
            time.sleep(0.0002)  # leave the interpreter to the thread
        worker.join()
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        result: Array = outcomes[0]
        return result


@pytest.fixture
def model(tiny_models: TinyModels) -> Model:
    return load_model(open_model_file(tiny_models("tiny-qwen2", "q8_0")))


WANTED = os.environ.get("TEST_DEVICES", "cpu,reference,vulkan,d3d12").split(",")


@pytest.fixture(params=[name for name in ("cpu", "reference", "vulkan", "d3d12") if name in WANTED])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    drivers = {"vulkan": open_vulkan_or_skip, "d3d12": open_d3d12_or_skip}
    open_one = drivers.get(request.param, functools.partial(open_device, request.param))
    with open_one() as one:
        yield one


@pytest.fixture
def whole(model: Model, device: Device) -> Array:
    """What comes without slices: a chunk of the prompt, then single tokens."""
    steps = Steps(model, [device], None)
    rows = np.concatenate(
        [steps.logits(0, FIRST), *(steps.logits(t, t + 1) for t in range(FIRST, FIRST + 4))]
    )
    steps.runner.close()
    return rows


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(dispatches=1),
        Bounds(dispatches=7),
        Bounds(dispatches=10_000),
        Bounds(seconds=1e-3),
        Bounds(dispatches=5, seconds=1.0),
    ],
    ids=str,
)
def test_slices_change_no_bit(model: Model, device: Device, whole: Array, bounds: Bounds) -> None:
    gate = SliceGate()
    steps = Steps(model, [device], gate)
    watch = Watch(device)
    calls: list[int] = []

    def host() -> None:
        before = len(watch.submissions)
        result = gate.step(bounds, lambda: False)
        calls.append(result.dispatches)
        # A call submits one piece or none, tells its size, and has done so when it returns.
        assert watch.submissions[before:] == [result.dispatches] * bool(result.dispatches)

    rows = [steps.logits(0, FIRST, host)]
    rows += [steps.logits(t, t + 1, host) for t in range(FIRST, FIRST + 4)]
    np.testing.assert_array_equal(np.concatenate(rows), whole)
    assert watch.overlapping == 0
    assert sum(calls) == sum(watch.submissions)
    most = max(calls)
    if bounds.dispatches is not None:
        assert most <= bounds.dispatches
    if bounds.dispatches in (1, 7):
        assert most == bounds.dispatches
    steps.runner.close()


def test_bounds_may_change_with_each_call(model: Model, device: Device, whole: Array) -> None:
    gate = SliceGate()
    steps = Steps(model, [device], gate)
    random = np.random.default_rng()

    def host() -> None:
        dispatches = int(random.integers(1, 40))
        seconds = float(random.choice([1e-4, 1e-2])) if random.integers(2) else None
        assert gate.step(Bounds(dispatches, seconds), lambda: False).dispatches <= dispatches

    rows = [steps.logits(0, FIRST, host)]
    rows += [steps.logits(t, t + 1, host) for t in range(FIRST, FIRST + 4)]
    np.testing.assert_array_equal(np.concatenate(rows), whole)
    steps.runner.close()


def test_slices_over_two_devices(model: Model) -> None:
    """The second device has what the first lacks; transfers happen between the pieces."""
    with open_device("cpu") as first, open_device("reference") as second:
        verdicts = VerdictStore(None)
        plan_kernels = {
            step.lowering.dispatches[0].kernel.name
            for step in Steps(model, [first], None).runner.plan.segments[0].steps
            if step.node.op.name == "linear"
        }
        assert plan_kernels
        for name in plan_kernels:
            verdicts.record(first.info, name, passed=False, reason="the test bars it")
        results = []
        for gate in (None, SliceGate()):
            steps = Steps(model, [first, second], gate)
            steps.runner.close()
            steps.runner = StepRunner(
                model,
                [first, second],
                verdicts,
                context=CONTEXT,
                kv_blocks=40,
                kv_dtype=DType.F32,
                limits=LIMITS,
                gate=gate,
            )
            assert len(steps.runner.plan.segments) > 1

            def host(gate: SliceGate | None = gate) -> None:
                if gate is not None:
                    assert gate.step(Bounds(dispatches=2), lambda: False).dispatches <= 2

            results.append(steps.logits(0, 21, host))
            steps.runner.close()
        np.testing.assert_array_equal(results[0], results[1])


def test_without_calls_nothing_is_submitted(model: Model) -> None:
    with open_device("reference") as device:
        gate = SliceGate()
        steps, watch = Steps(model, [device], gate), Watch(device)
        calls = iter([None] * 3)

        def host() -> None:
            if next(calls, 0) is None:
                time.sleep(0.05)
                assert watch.submissions == []
            else:
                gate.open()

        steps.logits(0, FIRST, host)
        assert len(watch.submissions) == 1
        steps.runner.close()


def test_a_call_with_nothing_to_do(model: Model) -> None:
    del model
    gate = SliceGate()
    result = gate.step(Bounds(dispatches=3), lambda: True)
    assert (result.dispatches, result.idle) == (0, True)
    assert not gate.step(Bounds(dispatches=3), lambda: False).idle


def test_a_submission_that_fails_ends_the_call_too(model: Model) -> None:
    fault = Fault(FaultKind.LOST, "linear", at=4)
    with FaultyDevice(open_device("reference"), [fault]) as device:
        gate = SliceGate()
        steps = Steps(model, [device], gate)
        with pytest.raises(DeviceLost, match="injected"):
            steps.logits(0, FIRST, lambda: gate.step(Bounds(dispatches=1), lambda: False))
        steps.runner.close()


def test_calls_from_several_threads_share_the_work(model: Model) -> None:
    with open_device("reference") as device:
        gate = SliceGate()
        steps, watch = Steps(model, [device], gate), Watch(device)
        ended = threading.Event()

        def call() -> None:
            while not ended.is_set():
                assert gate.step(Bounds(dispatches=2), lambda: False).dispatches <= 2

        others = [threading.Thread(target=call) for _ in range(3)]
        for other in others:
            other.start()
        steps.logits(0, FIRST, lambda: time.sleep(0.001))
        ended.set()
        for other in others:
            other.join()
        assert watch.overlapping == 0
        assert max(watch.submissions) <= 2
        steps.runner.close()


def test_recordings_of_pieces_do_not_pile_up(model: Model) -> None:
    with open_device("reference") as device:
        gate = SliceGate()
        steps = Steps(model, [device], gate)
        made = 0
        finish = device.encode

        def count(*arguments: Any) -> Recording:
            nonlocal made
            made += 1
            return finish(*arguments)

        steps.logits(0, 1, lambda: gate.step(Bounds(dispatches=5), lambda: False))
        device.encode = count  # type: ignore[method-assign,assignment]
        steps.logits(1, 2, lambda: gate.step(Bounds(dispatches=5), lambda: False))
        assert made == 0, "the same bounds find the same recordings"
        for most in range(1, 30):
            bounds = Bounds(dispatches=most)
            steps.logits(2, 3, functools.partial(gate.step, bounds, lambda: False))
        for recorded in steps.runner._recorded.values():
            for segment in recorded._recordings:
                assert isinstance(segment, SlicedSegment)
                kept = sum(end - start for start, end in segment._pieces)
                assert kept <= 4 * len(segment._dispatches)
        steps.runner.close()
