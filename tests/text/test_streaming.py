"""Whole generations, streamed: any tokens, any stop strings, through the engine's own sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.progress import no_progress
from crossinfer.engine.generation import FinishReason, Generation
from crossinfer.engine.sampling import SamplingParams
from crossinfer.engine.sequence import GenerationSequence
from crossinfer.text.stops import StopFilter
from crossinfer.text.tokenizer import Tokenizer

END = 266
MEMORY = {"weights": 0, "kv": 0, "activations": 0}

# Bytes that begin, continue and break characters, and the merged and control tokens.
PARTS = st.sampled_from([0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 97, 98])
TOKENS = st.lists(PARTS | st.integers(0, 269).filter(lambda token: token != END), max_size=24)
STOPS = st.lists(
    st.text(st.sampled_from("ab\u00e9\u20ac\U0001f600\ufffdhello "), min_size=1, max_size=4),
    max_size=5,
)


def run(
    tokenizer: Tokenizer,
    answer: Sequence[int],
    stops: Sequence[str],
    *,
    max_tokens: int = 100,
    end_ids: frozenset[int] = frozenset((END,)),
) -> tuple[list[str], Generation]:
    """The pieces and the result when the model answers with `answer` and then ends its turn."""
    sequence = GenerationSequence(
        [0],
        params=SamplingParams(temperature=0.0),
        seed=0,
        max_tokens=max_tokens,
        end_ids=end_ids,
        detokenizer=tokenizer.detokenizer(),
        stops=StopFilter(stops),
        memory=lambda: MEMORY,
        progress=no_progress,
    )
    for token in (*answer, END):
        if sequence.done:
            break
        sequence.accept(np.array([token]), None)
        sequence.deliver()
    pieces: list[str] = []
    while True:
        outcome = sequence.outcomes.get_nowait()
        if isinstance(outcome, Generation):
            assert sequence.outcomes.empty()
            return pieces, outcome
        assert isinstance(outcome, str)
        pieces.append(outcome)


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """`text` up to where the first stop string begins, and whether there is one."""
    starts = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(starts)], True) if starts else (text, False)


@given(answer=TOKENS, stops=STOPS)
def test_pieces_join_to_the_whole_cut_at_the_first_stop(
    tiny: Tokenizer, answer: list[int], stops: list[str]
) -> None:
    pieces, result = run(tiny, answer, stops)
    expected, _ = cut(tiny.decode(answer, continued=True), stops)
    assert "".join(pieces) == result.text == expected
    assert all(pieces)
    assert result.finish_reason is FinishReason.STOP
    assert not any(stop in result.text for stop in stops)


@given(answer=TOKENS, stops=STOPS, limit=st.integers(0, 24))
def test_the_limit_delivers_what_was_held_back(
    tiny: Tokenizer, answer: list[int], stops: list[str], limit: int
) -> None:
    pieces, result = run(tiny, answer, stops, max_tokens=limit)
    expected, stopped = cut(tiny.decode(answer[:limit], continued=True), stops)
    assert "".join(pieces) == result.text == expected
    ended = stopped or len(answer) < limit
    assert result.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)


@given(answer=TOKENS, stops=STOPS, taken=st.integers(0, 24))
def test_cancelling_delivers_what_was_held_back(
    tiny: Tokenizer, answer: list[int], stops: list[str], taken: int
) -> None:
    sequence = GenerationSequence(
        [0],
        params=SamplingParams(temperature=0.0),
        seed=0,
        max_tokens=100,
        end_ids=frozenset((END,)),
        detokenizer=tiny.detokenizer(),
        stops=StopFilter(stops),
        memory=lambda: MEMORY,
        progress=no_progress,
    )
    for token in answer[:taken]:
        sequence.deliver()
        if not sequence.done:
            sequence.accept(np.array([token]), None)
    sequence.cancel_now()  # the last token's text was not told yet
    while not isinstance(outcome := sequence.outcomes.get_nowait(), Generation):
        pass
    expected, stopped = cut(tiny.decode(answer[:taken], continued=True), stops)
    assert outcome.text == expected
    assert outcome.finish_reason is (FinishReason.STOP if stopped else FinishReason.CANCELLED)


@given(text=st.text(max_size=30), stops=STOPS)
def test_no_replacement_while_a_character_arrives(
    tiny: Tokenizer, text: str, stops: list[str]
) -> None:
    text = text.replace("\ufffd", "")
    pieces, _ = run(tiny, list(text.encode()), stops)
    assert "\ufffd" not in "".join(pieces)


@given(text=st.text(st.sampled_from("ab\u00e9\u20ac\U0001f600"), max_size=30), stops=STOPS)
def test_sentencepiece_streams_alike(
    tiny_sentencepiece: Tokenizer, text: str, stops: list[str]
) -> None:
    end = tiny_sentencepiece.eos_id
    assert end == 2
    answer = tiny_sentencepiece.encode(text, add_bos=False)
    pieces, result = run(tiny_sentencepiece, [*answer, end], stops, end_ids=frozenset((end,)))
    expected, _ = cut(" " * bool(text) + text, stops)
    assert "".join(pieces) == result.text == expected


def test_a_stop_string_inside_a_character_of_several_bytes(tiny: Tokenizer) -> None:
    answer = list("a\u00e9\u20acb".encode())
    pieces, result = run(tiny, answer, ["\u20ac"])
    assert (pieces, result.text) == (["a", "\u00e9"], "a\u00e9")
    assert result.tokens == tuple(answer[:6])


@pytest.mark.parametrize("end", [65, 264, 266, 267])
def test_every_end_token_ends_the_turn_unseen(tiny: Tokenizer, end: int) -> None:
    ends = frozenset((65, 264, 266, 267))
    pieces, result = run(tiny, [104, end, 105], [], end_ids=ends)
    assert (pieces, result.tokens) == (["h"], (104,))
    assert result.finish_reason is FinishReason.STOP
