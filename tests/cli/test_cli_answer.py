"""Ctrl-C while an answer comes."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.tiny_models import TinyModels

from crossinfer.cli.answer import receive
from crossinfer.cli.failures import EXIT_INTERRUPTED
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.engine.llm import LLM
from crossinfer.engine.stream import Stream


class Interrupted:
    """A stream whose reader is interrupted, so many times, after its first piece."""

    def __init__(self, stream: Stream, interrupts: int) -> None:
        self._stream = stream
        self._interrupts = interrupts
        self.result = stream.result
        self.closed = threading.Event()

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()
        self.closed.set()

    def __iter__(self) -> Iterator[str]:
        for piece in self._stream:
            yield piece
            while self._interrupts:
                self._interrupts -= 1
                signal.raise_signal(signal.SIGINT)


@pytest.fixture
def llm(tiny_models: TinyModels) -> Iterator[LLM]:
    with LLM(tiny_models("tiny-llama")) as llm:
        yield llm


def receive_interrupted(llm: LLM, interrupts: int, *, held: bool = False) -> str:
    """The finish reason of an answer that so many Ctrl-C hit, at half of it if it is `held`."""
    run, steps = llm._runner.run, itertools.count()

    def wait_and_run(*arguments: Any, **options: Any) -> Any:
        if held and next(steps) == 100:
            assert stream.closed.wait(20)
        return run(*arguments, **options)

    llm._runner.run = wait_and_run  # type: ignore[method-assign]
    stream = Interrupted(llm.stream("once", max_tokens=200), interrupts)
    return receive(cast(Stream, stream), ProgressBars(), show=True).finish_reason


def test_one_ends_the_answer(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert receive_interrupted(llm, 1, held=True) == "cancelled"
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().out.endswith("\n")


def test_two_end_the_process(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as ended:
        receive_interrupted(llm, 2)
    assert ended.value.code == EXIT_INTERRUPTED


def test_ignored_interrupts_stay_ignored(llm: LLM) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert receive_interrupted(llm, 1) != "cancelled"
    finally:
        signal.signal(signal.SIGINT, before)
