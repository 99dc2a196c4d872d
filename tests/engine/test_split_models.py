"""Models whose layers are divided among devices, or streamed to one: the same logits and tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.steps import LIMITS, logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceWarning, PlanError
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.engine.step import StepRunner
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.buffer import View
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.fence import Fence
from crossinfer.hal.host_memory import HostMemory
from crossinfer.models.model import Model, load_model

LAYERS = 5
TOKENS: list[int] = np.random.default_rng(11).integers(0, 300, 45).tolist()
CUTS = (16, 17, 18, 30)


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> Model:
    return load_model(tiny_models("tiny-qwen2", "q8_0", layers=LAYERS))


@pytest.fixture(scope="module")
def expected(model: Model) -> Array:
    with step_runner(model, [ReferenceDevice()]) as runner:
        return logits_of(runner, TOKENS, CUTS)


def limited(model: Model, share: float, *, name: str = "small") -> ReferenceDevice:
    """A device with room for a share of the layers, of what is beside them, and for slots."""
    with step_runner(model, [ReferenceDevice()]) as runner:
        logits_of(runner, TOKENS[: LIMITS.rows])
        memory = runner.memory()
    total = memory["weights"] + memory["kv"]
    return ReferenceDevice(name=name, memory_bytes=int(share * total) + memory["activations"])


def greedy(runner: StepRunner, count: int) -> list[int]:
    """Tokens generated after TOKENS[:7]."""
    tokens = TOKENS[:7]
    for _ in range(count):
        done = len(tokens) - 1 if len(tokens) > 7 else 0
        blocks = range(1, 1 + (len(tokens) + 15) // 16)
        chunk = Chunk(tokens[done:], len(tokens), blocks, [len(tokens) - done - 1])
        result = runner.run(Batch((chunk,)), want_logits=False)
        tokens = [*tokens, int(result.argmax[0])]
    return tokens[7:]


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_a_model_that_does_not_fit_is_divided(model: Model, expected: Array, share: float) -> None:
    small = limited(model, share)
    with step_runner(model, [small, ReferenceDevice(name="large")]) as runner:
        split = runner.plan.split
        assert 0 < split.layers.count(0) < LAYERS
        assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6
        assert runner.plan.split == split  # that of the first bucket
        assert small.info.memory_bytes is not None
        assert small.memory_in_use <= small.info.memory_bytes


@pytest.mark.parametrize("count", range(LAYERS + 1))
def test_any_number_of_layers_on_the_first_device(
    model: Model, expected: Array, count: int
) -> None:
    devices = [ReferenceDevice(name="first"), ReferenceDevice(name="second")]
    with step_runner(model, devices, first_layers=count) as runner:
        assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6
        kept = {tensor.name for tensor in runner.plan.states_on(0)}
        assert kept == {f"model.layers.{layer}.kv_cache" for layer in range(count)}


@pytest.mark.parametrize("count", range(LAYERS))
def test_streamed_layers_do_not_change_logits(model: Model, expected: Array, count: int) -> None:
    with step_runner(model, [ReferenceDevice()], first_layers=count, stream_layers=True) as runner:
        assert runner.plan.split.streamed == frozenset(range(count, LAYERS))
        # Twice: the second time, slots hold what the first one left there.
        for _ in range(2):
            assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6


def test_streamed_layers_need_no_more_memory_than_there_is(model: Model, expected: Array) -> None:
    small = limited(model, 0.75)
    with step_runner(model, [small], stream_layers=True) as runner:
        assert 2 < len(runner.plan.split.streamed) <= LAYERS
        assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6
        assert small.info.memory_bytes is not None
        assert small.memory_in_use <= small.info.memory_bytes
        memory = runner.memory()
        assert memory["streamed"] > memory["weights"] // LAYERS


def test_tokens_of_a_streamed_model_are_the_same(model: Model) -> None:
    with step_runner(model, [ReferenceDevice()]) as runner:
        tokens = greedy(runner, 12)
    with step_runner(model, [ReferenceDevice()], first_layers=1, stream_layers=True) as runner:
        assert greedy(runner, 12) == tokens


@pytest.mark.parametrize("lacking", ["linear", "attention", "swiglu", "rms_norm"])
def test_streamed_layers_beside_ops_that_are_elsewhere(
    model: Model, expected: Array, lacking: str
) -> None:
    devices = [ReferenceDevice(name="first", lacks=[lacking]), ReferenceDevice(name="second")]
    with step_runner(model, devices, first_layers=2, stream_layers=True) as runner:
        assert {segment.device for segment in runner.plan.segments} == {0, 1}
        assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6


def test_one_device_that_is_too_small_is_an_error_with_ways_out(model: Model) -> None:
    small = limited(model, 0.6)
    with (
        pytest.raises(PlanError, match="There is no room for the model") as caught,
        step_runner(model, [small]),
    ):
        pass
    assert "name a second device for the rest, as in small,cpu" in str(caught.value).lower()
    assert "have layers streamed" in str(caught.value)


def test_timed_steps_of_streamed_layers(model: Model) -> None:
    with step_runner(model, [ReferenceDevice()], first_layers=0, stream_layers=True) as runner:
        chunk = Chunk(TOKENS[:5], 5, [1], [4])
        plain = runner.run(Batch((chunk,)))
        timed = runner.run(Batch((chunk,)), timed=True)
        assert len(timed.kernels) > 10 * LAYERS
        np.testing.assert_array_equal(plain.argmax, timed.argmax)


def test_layers_come_while_others_are_computed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order: the next layer's copy starts before this one's work is waited for."""
    device = ReferenceDevice()
    events: list[str] = []
    submit, copy_in = device.submit, device.copy_in

    def record_submit(*arguments: object, **keywords: object) -> object:
        events.append("submit")
        return submit(*arguments, **keywords)  # type: ignore[arg-type]

    def record_copy(source: object, target: object) -> object:
        events.append("copy")
        return copy_in(source, target)  # type: ignore[arg-type]

    with step_runner(model, [device], first_layers=0, stream_layers=True) as runner:
        chunk = Chunk(TOKENS[:5], 5, [1], [4])
        runner.run(Batch((chunk,)))
        monkeypatch.setattr(device, "submit", record_submit)
        monkeypatch.setattr(device, "copy_in", record_copy)
        runner.run(Batch((chunk,)))
    # What is before the layers; then layer by layer, the next one's copy on its way; the head; and
    # the first layers of the next step. Layers 0 and 1 were there already.
    layers = ["submit", "submit", "submit", "copy", "submit", "copy", "submit", "copy", "submit"]
    assert events == [*layers, "submit", "copy", "copy"]
    assert events.count("copy") == LAYERS


class LateFence(Fence):
    """A copy that is seen to be done only by who waits for it."""

    def __init__(self, device: Device, copy: Callable[[], object]) -> None:
        super().__init__(device)
        self._copy: Callable[[], object] | None = copy

    def wait(self, timeout_s: float | None = None) -> None:
        if self._copy is not None:
            self._copy()
            self._copy = None
            self.signal()
        super().wait(timeout_s)


def test_a_copy_that_is_late_has_the_next_one_behind_it(
    model: Model, expected: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that copies follow each other without a gap. They are made when they are waited for."""
    device = ReferenceDevice()
    events: list[str] = []

    def copy_in(source: HostMemory, target: View) -> Fence:
        layer = source.label.removeprefix("layer ")
        events.append(f"copy {layer}")

        def copy() -> None:
            events.append(f"wait {layer}")
            device._write(target, source.data[: target.size])

        return LateFence(device, copy)

    monkeypatch.setattr(device, "copy_in", copy_in)
    with step_runner(model, [device], first_layers=0, stream_layers=True) as runner:
        assert row_error(logits_of(runner, TOKENS, CUTS), expected) < 1e-6
        copies = [event for event in events if event.startswith("copy")]
        assert copies[:7] == [f"copy {layer}" for layer in (0, 1, 2, 3, 4, 0, 1)]
        for event in ("wait 1", "wait 2", "wait 3"):
            layer = int(event.split()[1])
            assert events.index(f"copy {layer + 1}") < events.index(event)


def test_layers_are_divided_anew_when_a_device_is_lost_for_good(tiny_models: TinyModels) -> None:
    path, prompt = tiny_models("tiny-llama"), TOKENS[:9]
    with LLM(path, "reference", context=64) as llm:
        expected = llm.generate(prompt, max_tokens=12).tokens
    # A device object is the caller's, so it is not opened again.
    first = FaultyDevice(ReferenceDevice(name="first"), [Fault(FaultKind.LOST, "attention", 6)])
    devices = [first, ReferenceDevice(name="second")]
    with LLM(path, devices, context=64, gpu_layers=1) as llm:
        assert llm.plan.split.layers == (0, 1)
        with pytest.warns(DeviceWarning):
            answer = llm.generate(prompt, max_tokens=12)
        assert answer.tokens == expected
        assert [info.name for info in llm.devices] == ["second"]
        assert llm.placement is None
