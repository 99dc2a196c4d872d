"""Answers of a model that works in slices, through the Python API."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faulty_backend import FaultyBackend
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceWarning, FinishReason, RequestError
from crossinfer.engine.verification import Verifier
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind
from crossinfer.verify.pending import PlannedOp

PROMPT = list(range(30, 51))


@pytest.fixture(scope="module")
def plain(tiny_models: TinyModels) -> Iterator[LLM]:
    with LLM(tiny_models("tiny-llama"), "cpu", context=96) as llm:
        yield llm


@pytest.fixture
def sliced(tiny_models: TinyModels) -> Iterator[LLM]:
    with LLM(tiny_models("tiny-llama"), "cpu", context=96, sliced=True) as llm:
        yield llm


def step_until_idle(llm: LLM, max_dispatches: int | None, max_ms: float | None) -> None:
    deadline = time.monotonic() + 60
    while not llm.step(max_dispatches=max_dispatches, max_ms=max_ms).idle:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("dispatches", "ms"), [(1, None), (9, None), (None, 0.5), (None, None)])
def test_answers_are_those_of_a_model_that_runs_by_itself(
    plain: LLM, sliced: LLM, dispatches: int | None, ms: float | None
) -> None:
    streams = [
        sliced.stream(PROMPT, max_tokens=8, temperature=1.2, seed=5),
        sliced.stream(PROMPT[3:], max_tokens=12),
    ]
    step_until_idle(sliced, dispatches, ms)
    answers = [stream.result() for stream in streams]
    sampled = plain.generate(PROMPT, max_tokens=8, temperature=1.2, seed=5)
    assert answers[0].tokens == sampled.tokens
    assert answers[1].tokens == plain.generate(PROMPT[3:], max_tokens=12).tokens


def test_a_frame_loop_on_one_thread(plain: LLM, sliced: LLM) -> None:
    stream = sliced.stream(PROMPT, max_tokens=10)
    pieces, waits, deadline = [], 0, time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline
        sliced.step(max_dispatches=5)
        piece = stream.next_piece(0)
        if piece is None:
            break
        waits += not piece
        pieces.append(piece)
    assert waits > 10, "most frames see no new piece"
    assert "".join(pieces) == plain.generate(PROMPT, max_tokens=10).text
    assert stream.generation == stream.result()


def test_a_model_without_work_is_idle(sliced: LLM) -> None:
    for _ in range(3):
        result = sliced.step(max_dispatches=1)
        assert (result.dispatches, result.idle) == (0, True)


def test_a_cancelled_answer_ends_after_its_step(sliced: LLM) -> None:
    stream = sliced.stream(PROMPT, max_tokens=50)
    while not sliced.step(max_dispatches=2).dispatches:
        time.sleep(0.001)
    stream.close()
    step_until_idle(sliced, 100, None)
    assert stream.result().finish_reason is FinishReason.CANCELLED


def test_closing_ends_a_step_that_nobody_steps(sliced: LLM) -> None:
    stream = sliced.stream(PROMPT, max_tokens=50)
    while not sliced.step(max_dispatches=2).dispatches:
        time.sleep(0.001)
    closer = threading.Thread(target=sliced.close)
    closer.start()
    closer.join(30)
    assert not closer.is_alive()
    assert stream.result().finish_reason is FinishReason.CANCELLED
    with pytest.raises(RequestError, match="closed"):
        sliced.step(max_dispatches=1)


def test_kernels_are_verified_before_the_first_slice(
    tiny_models: TinyModels, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del empty_cache  # no verdicts yet
    tried: list[int] = []
    verify = Verifier._verify

    def count(self: Verifier, device: Device, ops: list[PlannedOp]) -> bool:
        tried.append(len(ops))
        return verify(self, device, ops)

    monkeypatch.setattr(Verifier, "_verify", count)
    with LLM(tiny_models("tiny-llama"), "cpu", context=96, sliced=True) as llm:
        assert sum(tried) > 0
        tried.clear()
        stream = llm.stream(PROMPT, max_tokens=3)
        step_until_idle(llm, None, None)
        assert stream.result().tokens
        assert tried, "the prompt's bucket is new"
        assert sum(tried) == 0


def test_steps_may_be_kept_short(tiny_models: TinyModels, plain: LLM) -> None:
    model = tiny_models("tiny-llama")
    with LLM(model, "cpu", context=96, sliced=True, step_rows=4) as llm:
        stream = llm.stream(PROMPT, max_tokens=3)
        step_until_idle(llm, None, None)
        assert stream.result().tokens == plain.generate(PROMPT, max_tokens=3).tokens
        assert {shape.rows for shape in llm._runner.current._recorded} <= {1, 2, 4}
    with pytest.raises(RequestError, match="step_rows is 0"):
        LLM(model, "cpu", step_rows=0)


def test_a_lost_device_is_made_again_between_slices(
    tiny_models: TinyModels, plain: LLM, monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    del empty_cache  # the verdict on the kernel in flight is this test's own
    fault = Fault(FaultKind.LOST, "swiglu", at=9)
    backend = FaultyBackend([fault])
    backend.install(monkeypatch, "faulty")
    model = tiny_models("tiny-llama")
    with LLM(model, ["faulty", "reference"], context=96, sliced=True) as llm:
        stream = llm.stream(PROMPT, max_tokens=8)
        step_until_idle(llm, 3, None)
        with pytest.warns(DeviceWarning):
            tokens = stream.result().tokens
    assert tokens == plain.generate(PROMPT, max_tokens=8).tokens
    assert fault.seen > fault.at
    assert len(backend.opened) >= 2


def test_timed_steps_are_not_cut(sliced: LLM) -> None:
    with pytest.raises(RequestError, match="timeline"), sliced.timeline():
        pass


def test_bounds_that_make_no_sense(sliced: LLM, plain: LLM) -> None:
    with pytest.raises(RequestError, match="max_dispatches is 0"):
        sliced.step(max_dispatches=0)
    for ms in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(RequestError, match="max_ms"):
            sliced.step(max_ms=ms)
    with pytest.raises(RequestError, match="sliced=True"):
        plain.step(max_dispatches=1)
