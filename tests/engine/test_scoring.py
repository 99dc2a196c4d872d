"""Logits of every token, taken slowly: memory stays small, and nothing else waits."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np
import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceError
from crossinfer.core.dtypes import Array
from crossinfer.core.progress import no_progress
from crossinfer.engine import scoring
from crossinfer.engine.sampling import non_finite_logits
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


@pytest.mark.parametrize("taker", ["gather_logits", "losses_of"])
def test_a_text_that_was_given_up_holds_no_memory(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, taker: str
) -> None:
    """Also while somebody still has the error, and with it the frames that it came through."""

    def gives_up(*arguments: object) -> None:
        next(next(one for one in arguments if isinstance(one, Generator)))
        raise non_finite_logits()

    with LLM(tiny_models("tiny-llama"), "cpu", context=256, step_rows=STEP_ROWS) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(scoring, taker, gives_up)
            with pytest.raises(DeviceError) as kept:
                (llm.logits if taker == "gather_logits" else llm.token_losses)(TOKENS)
        with llm.stream((TOKENS * 2)[:250], max_tokens=2) as stream:
            while stream.generation is None:
                assert stream.next_piece(20) != ""
        assert kept.value.__traceback__ is not None
