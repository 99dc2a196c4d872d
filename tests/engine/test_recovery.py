"""Devices that are lost in the middle of answers: the answers go on, and nobody gets other tokens.

Faults are injected at the dispatches of `attention` and others, counted over the life of an LLM;
tiny-llama has two layers, so a step has two attentions and one argmax.
"""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faulty_backend import GPU, FaultyBackend
from tests.tiny_models import TinyModels
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer import LLM, DeviceLost, DeviceWarning, FinishReason, Generation
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import OutOfDeviceMemory
from crossinfer.engine import recovery
from crossinfer.engine.batch import Batch, BatchLimits
from crossinfer.engine.step import StepResult, StepRunner
from crossinfer.engine.suspects import find_guilty
from crossinfer.engine.verification import planned_op, steps_on
from crossinfer.graph.ops import OPS
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.kernel import Kernel, Lowering, OpDescription, Operand
from crossinfer.hal.verdicts import VerdictStore

PROMPT = list(range(20, 40))
NEW_TOKENS = 8
INNER: dict[str, Callable[[], Device]] = {
    "reference": ReferenceDevice,
    "cpu": CpuDevice,
    "vulkan": open_vulkan_or_skip,
}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerdictStore:
    """Verdicts of these tests alone; what was compiled before stays."""
    made = VerdictStore(tmp_path / "verdicts.json")
    monkeypatch.setattr(VerdictStore, "default", lambda: made)
    return made


@pytest.fixture
def path(tiny_models: TinyModels) -> Path:
    return tiny_models("tiny-llama")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FaultyBackend]:
    """A backend `faulty` with these faults."""

    def made(*faults: Fault, **options: Any) -> FaultyBackend:
        backend = FaultyBackend(faults, **options)
        backend.install(monkeypatch, "faulty")
        return backend

    return made


Install = Callable[..., FaultyBackend]


def answer(llm: LLM, **options: Any) -> Generation:
    """An answer of exactly NEW_TOKENS tokens."""
    bias = dict.fromkeys(llm.tokenizer.end_ids, -math.inf)
    result = llm.generate(PROMPT, max_tokens=NEW_TOKENS, logit_bias=bias, **options)
    assert result.finish_reason is FinishReason.LENGTH
    return result


def greedy(llm: LLM) -> tuple[int, ...]:
    """As many tokens by the device's argmax."""
    result = llm.generate(PROMPT, max_tokens=NEW_TOKENS)
    assert result.finish_reason is FinishReason.LENGTH
    return result.tokens


def undisturbed(path: Path, kind: str = "reference") -> tuple[int, ...]:
    with INNER[kind]() as device, LLM(path, device, context=64) as llm:
        return greedy(llm)


@pytest.mark.parametrize("kind", INNER)
@pytest.mark.parametrize(
    ("kernel", "at"),
    [
        ("argmax", 1),  # the first token
        ("argmax", 4),
        ("argmax", NEW_TOKENS),  # the last one
        ("", 1),  # in the first chunk of the prompt
        ("", 50),  # in the second or third one
    ],
)
def test_an_answer_goes_on_after_a_loss(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch, kind: str, kernel: str, at: int
) -> None:
    monkeypatch.setattr("crossinfer.engine.setup.step_limits", lambda *_: BatchLimits(8, 4, 8))
    expected = undisturbed(path, kind)
    fault = Fault(FaultKind.LOST, kernel, at)
    # Verification would be counted too.
    monkeypatch.setenv("CROSSINFER_VERIFY", "0")
    backend = install(fault, make_inner=INNER[kind])
    with LLM(path, "faulty", context=64) as llm:
        assert len(backend.opened) == 1
        with pytest.warns(DeviceWarning, match="was lost while running .*: a fault was injected"):
            assert greedy(llm) == expected
        assert len(backend.opened) == 2
        assert backend.opened[0]._closed
        assert greedy(llm) == expected
    assert all(device._closed for device in backend.opened)
    assert fault.seen > at


def test_pieces_come_once_and_in_order(path: Path, install: Install) -> None:
    with LLM(path, "reference", context=64) as llm:
        expected = llm.generate(PROMPT, max_tokens=NEW_TOKENS).text
    install(Fault(FaultKind.LOST, "argmax", 3), Fault(FaultKind.LOST, "argmax", 6))
    with LLM(path, "faulty", context=64) as llm:
        stream = llm.stream(PROMPT, max_tokens=NEW_TOKENS)
        with pytest.warns(DeviceWarning) as caught:
            assert "".join(stream) == expected
        assert stream.result().text == expected
    assert len(caught) == 2


def test_sampling_goes_on_as_if_nothing_had_happened(path: Path, install: Install) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": 7, "presence_penalty": 0.5}
    with LLM(path, "reference", context=64) as llm:
        expected = answer(llm, **options).tokens
    install(Fault(FaultKind.LOST, "attention", 9))
    with LLM(path, "faulty", context=64) as llm, pytest.warns(DeviceWarning):
        assert answer(llm, **options).tokens == expected


def test_everything_in_flight_is_recovered(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers, answers that wait for room, and texts whose logits are wanted."""
    monkeypatch.setattr("crossinfer.engine.setup.step_limits", lambda *_: BatchLimits(8, 2, 8))
    prompts = [PROMPT[n:] for n in range(5)]

    def run(llm: LLM) -> tuple[list[tuple[int, ...]], list[Any]]:
        logits: list[Any] = []
        scorers = [
            threading.Thread(target=lambda: logits.append(llm.logits(PROMPT))) for _ in range(2)
        ]
        streams = [llm.stream(prompt, max_tokens=NEW_TOKENS) for prompt in prompts]
        for scorer in scorers:
            scorer.start()
        tokens = [stream.result().tokens for stream in streams]
        for scorer in scorers:
            scorer.join(60)
        return tokens, logits

    with LLM(path, "reference", context=64) as llm:
        expected, expected_logits = run(llm)
    faults = [Fault(FaultKind.LOST, "attention", at) for at in (7, 26, 41)]
    backend = install(*faults)
    monkeypatch.setattr(recovery, "MOST_LOSSES", 5)
    with LLM(path, "faulty", context=64) as llm, pytest.warns(DeviceWarning):
        tokens, logits = run(llm)
    assert len(backend.opened) == 4
    assert tokens == expected
    assert len(logits) == len(expected_logits) == 2
    for rows in logits:
        np.testing.assert_allclose(rows, expected_logits[0], atol=1e-5)


@pytest.mark.parametrize(("kernel", "at"), [("argmax", 2), ("attention", 9), ("", 30)])
def test_streamed_layers_stop_strings_and_logits_come_through(
    path: Path, install: Install, kernel: str, at: int
) -> None:
    def run(llm: LLM) -> tuple[list[str], Generation, Any]:
        pieces = list(llm.stream(PROMPT, max_tokens=NEW_TOKENS))
        text = "".join(pieces)
        stopped = llm.generate(PROMPT, max_tokens=NEW_TOKENS, stop=[text[3:5]])
        assert stopped.finish_reason is FinishReason.STOP
        return pieces, stopped, llm.logits(PROMPT)

    with LLM(path, "reference", context=64) as llm:
        expected = run(llm)
    backend = install(*(Fault(FaultKind.LOST, kernel, at * n) for n in (1, 2)))
    told = pytest.warns(DeviceWarning, match="was lost")
    with LLM(path, "faulty", context=64, gpu_layers=0, stream_layers=True) as llm, told:
        pieces, stopped, logits = run(llm)
    assert len(backend.opened) == 3
    assert "".join(pieces) == "".join(expected[0])
    assert (stopped.text, stopped.tokens) == (expected[1].text, expected[1].tokens)
    np.testing.assert_allclose(logits, expected[2], atol=1e-5)


def test_a_hang_is_a_loss(path: Path, install: Install) -> None:
    install(
        Fault(FaultKind.HANG, "attention", 7),
        make_inner=lambda: ReferenceDevice(deadline_s=0.3),
    )
    expected = undisturbed(path)
    told = pytest.warns(DeviceWarning, match="no answer within 0.3 seconds")
    with LLM(path, "faulty", context=64) as llm, told:
        assert greedy(llm) == expected


def test_the_guilty_kernel_is_barred_at_its_shape(
    path: Path, install: Install, store: VerdictStore
) -> None:
    """Many kernels were in flight; the one that loses the device alone too is the one."""
    expected = undisturbed(path)
    fault = Fault(FaultKind.LOST, "argmax", 3, always=True)
    backend = install(fault)
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        with pytest.warns(DeviceWarning, match="From here on argmax at x 1x.* is not used"):
            assert greedy(llm) == expected
        assert len(backend.opened) == 3  # at first, to look for the guilty one, to go on
        info = backend.opened[0].info
        (shape,) = store.barred_shapes(info, "argmax")
        assert store.is_barred(info, "argmax", shape)
        assert not store.is_barred(info, "argmax")
        reason = store.find(info, "argmax", shape)
        assert reason is not None
        assert "was lost while running argmax" in reason.reason
        assert "argmax is barred at this shape" in llm.explain()
    seen = fault.seen
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        assert greedy(llm) == expected
    assert fault.seen == seen  # the next start does not try it again
    assert len(backend.opened) == 4


def test_nobody_is_guilty_of_a_loss_before_a_kernel_ran(path: Path) -> None:
    class LostWhenAsked(ReferenceDevice):
        def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
            if self.lost is None:
                raise self.lose("the compiler took the device with it")
            return super().lower(op, operands)

    with LLM(path, "reference", context=64) as llm, LostWhenAsked() as device:
        ops = [planned_op(step) for step in steps_on(llm.plan, 0)]
        assert find_guilty(device, ops) is None
        assert device.lost is not None


@pytest.mark.parametrize("losses", [1, 2])
def test_a_kernel_that_was_alone_in_flight_is_barred_at_the_second_loss(
    path: Path, install: Install, store: VerdictStore, losses: int
) -> None:
    """Alone and on the new device it computes what it should, so the first one tells nothing."""
    others = [op.name for op in OPS if op.name != "argmax"]
    # After the first loss the kernel runs once in the trial, and once in the step.
    faults = [Fault(FaultKind.LOST, "argmax", at) for at in (3, 5)[:losses]]
    backend = install(*faults, make_inner=lambda: ReferenceDevice(lacks=others))
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        expected = undisturbed(path)
        with pytest.warns(DeviceWarning, match="Device faulty was lost while running argmax"):
            assert greedy(llm) == expected
        assert [info.name for info in llm.devices] == ["faulty", "reference"]
    assert len(backend.opened) == 1 + losses
    assert [(v.passed, v.shape[:4]) for v in store.all()] == [(False, "x 1x")] * (losses - 1)


def test_one_loss_does_not_make_a_model_impossible(path: Path, install: Install) -> None:
    """In a sliced model every kernel is alone in flight, and here is no other device for it."""
    install(Fault(FaultKind.LOST, "embed", 3))
    with LLM(path, "faulty", context=64, sliced=True) as llm:
        with pytest.warns(DeviceWarning, match="was lost while running embed"):
            tokens = stepped(llm)
        assert tokens == undisturbed(path)


def stepped(llm: LLM) -> tuple[int, ...]:
    """`greedy`, by slices of one kernel run."""
    stream = llm.stream(PROMPT, max_tokens=NEW_TOKENS)
    while stream.next_piece(0) is not None:
        llm.step(max_dispatches=1)
    return stream.result().tokens


def test_a_kernel_that_is_wrong_at_a_second_shape_is_barred_at_all(
    path: Path, install: Install, store: VerdictStore
) -> None:
    expected = undisturbed(path)
    backend = install(Fault(FaultKind.LOST, "swiglu", 1, always=True))
    # First in the bucket of the prompt, then in that of one token.
    with LLM(path, ["faulty", "reference"], context=64) as llm, pytest.warns(DeviceWarning):
        assert greedy(llm) == expected
    assert store.is_barred(backend.opened[0].info, "swiglu")


def test_a_loss_that_nothing_explains_is_forgiven_once(path: Path, install: Install) -> None:
    # Cases have caches of other sizes than the model, so only the model's steps are hit.
    fault = Fault(FaultKind.LOST, "attention", 8, shape="cache 5x2", always=True)
    backend = install(fault)
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        with pytest.warns(DeviceWarning) as caught:
            assert greedy(llm) == undisturbed(path)
        first, second = (str(warning.message) for warning in caught)
        assert "not used any more" not in first
        assert second.endswith("Device faulty is not used any more.")
        assert [info.name for info in llm.devices] == ["reference"]
    assert len(backend.opened) == 3
    assert all(device._closed for device in backend.opened)


@pytest.mark.parametrize("kind", INNER)
def test_wrong_kernels_are_found_before_they_are_used(
    path: Path, install: Install, store: VerdictStore, kind: str
) -> None:
    fault = Fault(FaultKind.WRONG_RESULT, "argmax", always=True)
    install(fault, make_inner=INNER[kind], info=GPU)
    with pytest.warns(DeviceWarning, match="Device gpu does not run argmax as it should"):
        llm = LLM(path, ["faulty", "reference"], context=64)
    with llm:
        assert "argmax is barred" in llm.explain()
        assert greedy(llm) == undisturbed(path, kind)
    seen = fault.seen
    assert seen == 1
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        greedy(llm)
    assert fault.seen == seen
    assert store.is_barred(GPU, "argmax")
    assert sum(verdict.passed for verdict in store.all()) > 5


CRASHES = """
    import ctypes, sys
    import pytest
    from tests.faulty_backend import GPU, FaultyBackend
    from crossinfer import LLM
    from crossinfer.backends.reference import ReferenceDevice

    class Crashing(ReferenceDevice):
        def _submit(self, recording, params, fence):
            if "swiglu" in recording.kernel_names:
                ctypes.string_at(0)  # as a driver that reads through a null pointer
            super()._submit(recording, params, fence)

    with pytest.MonkeyPatch.context() as patch:
        FaultyBackend((), Crashing, GPU).install(patch, "faulty")
        with LLM(sys.argv[1], ["faulty", "reference"], context=64) as llm:
            print(*llm.generate(list(range(20, 40)), max_tokens=8).tokens)
"""


def test_a_kernel_that_ends_the_process_twice_is_barred_at_the_next_start(
    path: Path, empty_cache: Path
) -> None:
    expected = undisturbed(path)
    command = [sys.executable, "-c", textwrap.dedent(CRASHES), str(path)]
    runs = [subprocess.run(command, check=False, capture_output=True, text=True) for _ in range(3)]
    assert all(run.returncode not in (0, 1) for run in runs[:2])
    assert runs[2].returncode == 0, runs[2].stderr
    assert runs[2].stdout.split() == [str(token) for token in expected]
    verdicts = VerdictStore(next(empty_cache.rglob("verdicts.json")))
    assert verdicts.is_barred(GPU, "swiglu")


def test_a_warning_that_is_an_error_leaves_nothing_open(path: Path, install: Install) -> None:
    backend = install(Fault(FaultKind.WRONG_RESULT, "argmax", always=True), info=GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeviceWarning, match="does not run argmax"):
            LLM(path, ["faulty", "reference"], context=64)
    assert all(device._closed for device in backend.opened)


def test_verification_can_be_switched_off(
    path: Path, install: Install, store: VerdictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSINFER_VERIFY", "0")
    install(info=GPU)
    with LLM(path, "faulty", context=64) as llm:
        assert greedy(llm) == undisturbed(path)
    assert store.all() == []


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.HANG])
def test_a_kernel_that_costs_the_device_in_verification_is_barred(
    path: Path, install: Install, store: VerdictStore, kind: FaultKind
) -> None:
    backend = install(
        Fault(kind, "rope_kv", always=True),
        make_inner=lambda: ReferenceDevice(deadline_s=0.3),
        info=GPU,
    )
    with pytest.warns(DeviceWarning, match="Device gpu was lost while running rope_kv"):
        llm = LLM(path, ["faulty", "reference"], context=64)
    with llm:
        assert greedy(llm) == undisturbed(path)
        assert [info.name for info in llm.devices] == ["gpu", "reference"]
    assert len(backend.opened) == 2
    assert store.is_barred(GPU, "rope_kv[f32]")


def test_kernels_of_later_buckets_are_verified_when_they_are_planned(
    path: Path, install: Install, store: VerdictStore
) -> None:
    class ByRows(ReferenceDevice):
        """Names linear after its rows, as devices do that have kernels for few and for many."""

        def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
            (found,) = super().lower(op, operands)
            if op.name != "linear":
                return (found,)
            (run,) = found.dispatches
            kernel = Kernel(f"linear t{operands['x'].shape[0]}", run.kernel.handle)
            return (Lowering((dataclasses.replace(run, kernel=kernel),)),)

    install(Fault(FaultKind.WRONG_RESULT, "linear t32", always=True), make_inner=ByRows, info=GPU)
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        assert not store.is_barred(GPU, "linear t1")
        assert store.find(GPU, "linear t32") is None
        with pytest.warns(DeviceWarning, match="Device gpu does not run linear t32"):
            assert greedy(llm) == undisturbed(path)
    assert store.is_barred(GPU, "linear t32")
    assert not store.is_barred(GPU, "linear t1")


class Forgetful(ReferenceDevice):
    """Has no memory left from a moment on."""

    full = False

    def _alloc(self, size: int) -> object:
        if self.full:
            raise OutOfDeviceMemory("Device forgetful has no memory left.")
        return super()._alloc(size)


def test_a_device_without_memory_in_recovery_gives_way_to_the_next(
    path: Path, install: Install
) -> None:
    fault = Fault(FaultKind.LOST, "attention", 9)

    def make_inner() -> Device:
        device = Forgetful()
        device.full = fault.seen >= fault.at
        return device

    install(fault, make_inner=make_inner)
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        with pytest.warns(DeviceWarning, match="no memory left.*is not used any more"):
            assert greedy(llm) == undisturbed(path)
        assert len(llm.devices) == 1
    alone = Fault(FaultKind.LOST, "attention", 9)
    fault = alone
    install(alone, make_inner=make_inner)
    with LLM(path, "faulty", context=64) as llm:
        for _ in range(2):  # now and later
            with pytest.raises(OutOfDeviceMemory, match="no memory left"):
                llm.generate(PROMPT, max_tokens=NEW_TOKENS)


def test_a_device_that_cannot_be_opened_again_gives_way_to_the_next(
    path: Path, install: Install
) -> None:
    install(Fault(FaultKind.LOST, "attention", 9)).refuses_after = 1
    with LLM(path, ["faulty", "reference"], context=64) as llm:
        with pytest.warns(DeviceWarning, match="is not used any more"):
            assert greedy(llm) == undisturbed(path)
        assert len(llm.devices) == 1


def test_the_next_device_gets_steps_of_its_own_size(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room was left for those alone."""
    rows: list[tuple[str, int]] = []
    run = StepRunner.run

    def watched(runner: StepRunner, batch: Batch, **options: Any) -> StepResult:
        rows.append((runner.plan.devices[0].info.name, batch.rows))
        return run(runner, batch, **options)

    monkeypatch.setattr(StepRunner, "run", watched)
    with ReferenceDevice() as inner, ReferenceDevice(name="next") as following:
        first = dataclasses.replace(inner.info, name="faulty", step_rows=16)
        following.info = dataclasses.replace(following.info, step_rows=4)
        install(Fault(FaultKind.LOST, "attention", 3), info=first).refuses_after = 1
        with (
            LLM(path, ["faulty", following], context=64) as llm,
            pytest.warns(DeviceWarning, match="is not used any more"),
        ):
            assert greedy(llm) == undisturbed(path)
    assert max(count for name, count in rows if name == "faulty") == 16
    assert max(count for name, count in rows if name == "next") == 4


def test_without_another_device_the_loss_reaches_the_callers(path: Path, install: Install) -> None:
    install(Fault(FaultKind.LOST, "attention", 9)).refuses_after = 1
    with LLM(path, "faulty", context=64) as llm:
        for _ in range(2):
            with pytest.raises(DeviceLost, match="a fault was injected") as caught:
                llm.generate(PROMPT, max_tokens=NEW_TOKENS)
            assert "attention[f32]" in caught.value.in_flight
            runs = [r for r in caught.value.dispatches if r.kernel == "attention[f32]"]
            assert {run.label for run in runs} == {
                "model.layers.0.attention",
                "model.layers.1.attention",
            }
            assert all("cache 5x2" in run.shape for run in runs)


def test_a_device_of_the_caller_is_not_made_again_nor_closed(path: Path) -> None:
    with FaultyDevice(ReferenceDevice(), [Fault(FaultKind.LOST, "attention", 9)]) as device:
        with LLM(path, [device, "reference"], context=64) as llm:
            with pytest.warns(DeviceWarning, match="is not used any more"):
                assert greedy(llm) == undisturbed(path)
            assert len(llm.devices) == 1
        assert not device._closed


def test_losses_on_the_way_are_recovered_from_too(path: Path, install: Install) -> None:
    """The second one strikes while the prompt is computed again: a step has two, a case one."""
    install(Fault(FaultKind.LOST, "attention", 9), Fault(FaultKind.LOST, "embed", 7))
    with LLM(path, "faulty", context=64) as llm, pytest.warns(DeviceWarning):
        assert greedy(llm) == undisturbed(path)


def far_apart() -> list[Fault]:
    """In steps of their own and not in the search for the guilty kernel; one in a second answer."""
    return [Fault(FaultKind.LOST, "argmax", at) for at in (2, 6, 14)]


def test_a_device_that_is_lost_again_and_again_is_given_up(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MOST_LOSSES", 2)
    backend = install(*far_apart())
    with LLM(path, "faulty", context=64) as llm:
        with pytest.warns(DeviceWarning):
            greedy(llm)
        with pytest.raises(DeviceLost, match="a fault was injected"):
            greedy(llm)
    assert len(backend.opened) == 3


def test_losses_long_ago_do_not_count(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MOST_LOSSES", 1)
    monkeypatch.setattr(recovery, "WITHIN_S", 0.0)
    install(*far_apart())
    with LLM(path, "faulty", context=64) as llm, pytest.warns(DeviceWarning):
        assert greedy(llm) == greedy(llm) == undisturbed(path)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    faults=st.lists(
        st.builds(
            Fault,
            st.sampled_from([FaultKind.LOST, FaultKind.HANG]),
            st.sampled_from(["attention", "rope_kv", "linear", "argmax", "embed", "rms_norm"]),
            st.integers(1, 120),
            always=st.booleans(),
        ),
        max_size=4,
    ),
    temperature=st.sampled_from([0.0, 0.8]),
)
def test_whatever_is_lost_the_tokens_are_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault], temperature: float
) -> None:
    store = VerdictStore(None)
    monkeypatch.setattr(VerdictStore, "default", lambda: store)
    options: dict[str, Any] = {"temperature": temperature, "seed": 5}
    with LLM(path, "reference", context=64) as llm:
        expected = answer(llm, **options).tokens
    backend = FaultyBackend(faults, lambda: ReferenceDevice(deadline_s=0.1))
    backend.install(monkeypatch, "faulty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with LLM(path, ["faulty", "reference"], context=64) as llm:
            assert answer(llm, **options).tokens == expected
    assert all(device._closed for device in backend.opened)
