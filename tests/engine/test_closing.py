"""How a model ends: closed, interrupted, collected, or never quite there."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM, CrossinferError, FinishReason, OutOfDeviceMemory, RequestError
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.engine.engine import Engine

PROMPT = list(range(20, 40))


class Gate:
    """Holds the engine's thread in its next step, until it is opened."""

    def __init__(self, llm: LLM, within: Callable[[], None] = lambda: None) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()
        self._run = llm._runner.run
        self._within = within
        llm._runner.run = self._wait_and_run  # type: ignore[assignment,method-assign]

    def open(self) -> None:
        self._opened.set()

    def _wait_and_run(self, *arguments: object, **options: object) -> object:
        self._within()
        self.reached.set()
        assert self._opened.wait(20)
        return self._run(*arguments, **options)  # type: ignore[arg-type]


@pytest.fixture
def llm(tiny_models: TinyModels) -> LLM:
    return LLM(tiny_models("tiny-llama"), "reference", context=64)


def test_a_text_that_is_being_scored_hears_of_the_close(llm: LLM) -> None:
    gate = Gate(llm)
    stream = llm.stream(PROMPT, max_tokens=1)
    assert gate.reached.wait(20)
    errors: list[CrossinferError] = []

    def score() -> None:
        try:
            llm.logits(PROMPT)
        except CrossinferError as error:
            errors.append(error)

    scorer = threading.Thread(target=score)
    scorer.start()
    while len(llm._engine._scheduler.all()) < 2:
        time.sleep(0.001)
    closer = threading.Thread(target=llm.close)
    closer.start()
    while not llm._engine._closing:
        time.sleep(0.001)
    gate.open()
    for thread in (closer, scorer):
        thread.join(20)
        assert not thread.is_alive()
    with pytest.raises(RequestError, match="The model was closed"):
        raise errors[0]
    assert len(stream.result().tokens) == 1


def test_what_a_closed_model_was_can_still_be_asked(llm: LLM) -> None:
    llm.close()
    assert [info.name for info in llm.devices] == ["reference"]
    assert "attention[f32]" in llm.explain()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_says_that_it_has_no_engine(llm: LLM) -> None:
    with llm._engine._wake:  # the worst moment: a child never gets this lock
        child = os.fork()
        if child == 0:
            try:
                llm.generate(PROMPT)
            except RequestError as error:
                llm.close()
                os._exit(0 if "forked" in str(error) else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert llm.generate(PROMPT, max_tokens=1).tokens
    llm.close()


def test_an_interrupted_close_releases_nothing_under_a_step(llm: LLM) -> None:
    gate = Gate(llm)
    stream = llm.stream(PROMPT, max_tokens=5)
    assert gate.reached.wait(20)
    thread = llm._engine._thread

    class Interrupted(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            del timeout
            raise KeyboardInterrupt

    thread.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.close()
    assert llm._runner.current._residents.buffers
    thread.__class__ = threading.Thread
    gate.open()
    thread.join(20)
    assert not llm._runner.current._residents.buffers
    assert stream.result().finish_reason is FinishReason.CANCELLED


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_model_that_the_engine_collects_ends_its_thread(tiny_models: TinyModels) -> None:
    """Garbage is collected on whatever thread makes some, and the engine's makes most."""
    collect = threading.Event()

    def within() -> None:
        if collect.wait(20):
            gc.collect()

    def use() -> tuple[Gate, Engine, weakref.ref[LLM]]:
        llm = LLM(tiny_models("tiny-llama"), "reference", context=64)
        gate = Gate(llm, within)
        cycle: list[object] = [llm, llm.stream(PROMPT, max_tokens=5)]
        cycle.append(cycle)
        return gate, llm._engine, weakref.ref(llm)

    gc.disable()
    try:
        gate, engine, model = use()
        collect.set()
        assert gate.reached.wait(20)
        assert model() is None
        gate.open()
        engine._thread.join(20)
        assert not engine.alive
    finally:
        gc.enable()


def test_a_load_that_fails_gives_the_memory_back(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_little(*_: object) -> None:
        raise OutOfDeviceMemory("no room for activations")

    monkeypatch.setattr("crossinfer.engine.step.RecordedPlan", too_little)
    with ReferenceDevice() as device:
        with pytest.raises(OutOfDeviceMemory):
            LLM(tiny_models("tiny-llama"), device, context=64)
        assert device.memory_in_use == 0


def test_figures_can_be_asked_for_while_buckets_are_recorded(llm: LLM) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                assert llm.generate(PROMPT, max_tokens=0).stats.weight_bytes > 0
                assert llm.explain()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for size in (1, 2, 3, 5, 9, 17, 33) * 3:
            llm.logits([5] * size)
            llm.generate([5] * size, max_tokens=1)
    finally:
        sys.setswitchinterval(before)
        stop.set()
        thread.join(20)
        llm.close()
    assert not errors
