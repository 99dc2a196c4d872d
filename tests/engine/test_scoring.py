"""Logits of every token, taken slowly: memory stays small, and nothing else waits."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.core.dtypes import Array
from crossinfer.core.progress import no_progress
from crossinfer.engine.scoring import logits_in_chunks
from crossinfer.engine.sequence import ScoreSequence

TOKENS: list[int] = np.random.default_rng(5).integers(0, 300, 200).tolist()
STEP_ROWS = 8


def test_logits_that_nobody_takes_are_not_computed(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    accept = ScoreSequence.accept

    def counted(self: ScoreSequence, *arguments: object) -> None:
        nonlocal most
        accept(self, *arguments)  # type: ignore[arg-type]
        most = max(most, self.outcomes.qsize())

    monkeypatch.setattr(ScoreSequence, "accept", counted)
    with LLM(tiny_models("tiny-llama"), "cpu", context=256, step_rows=STEP_ROWS) as llm:
        expected = llm.logits(TOKENS)
        most = 0
        chunks: list[Array] = []
        for chunk in logits_in_chunks(llm._engine, TOKENS, no_progress):
            if not chunks:
                end = time.monotonic() + 10
                while most < 4 and time.monotonic() < end:
                    time.sleep(0.01)
                # Others go on meanwhile.
                assert len(llm.generate(TOKENS[:5], max_tokens=20).tokens) == 20
            chunks.append(chunk)
        assert most == 4
        np.testing.assert_array_equal(np.concatenate(chunks), expected)


def test_who_stops_taking_logits_holds_nothing_up(tiny_models: TinyModels) -> None:
    with LLM(tiny_models("tiny-llama"), "cpu", context=256, step_rows=STEP_ROWS) as llm:
        chunks = logits_in_chunks(llm._engine, TOKENS, no_progress)
        next(chunks)
        chunks.close()
        assert len(llm.logits(TOKENS)) == len(TOKENS)
        left = logits_in_chunks(llm._engine, TOKENS, no_progress)
        next(left)
        started = time.monotonic()
    assert time.monotonic() - started < 10  # closing does not wait for a caller that never comes
