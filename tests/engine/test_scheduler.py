"""The scheduler against random loads: every row computed once, in order, within the limits."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.core.dtypes import Array
from crossinfer.core.progress import no_progress
from crossinfer.engine.batch import BatchLimits
from crossinfer.engine.kv_cache import BlockPool
from crossinfer.engine.scheduler import Scheduler
from crossinfer.engine.sequence import EngineSequence
from crossinfer.graph.batch import BLOCK_TOKENS

LIMITS = BatchLimits(rows=64, sequences=4, logits_rows=64)


class Recorded(EngineSequence):
    """Appends tokens 100, 101, … until it has `answer` of them; remembers what was computed."""

    def __init__(self, prompt: int, answer: int, *, scored: bool = False) -> None:
        """`scored`: the logits of every row of the prompt are wanted, as for a perplexity."""
        super().__init__(range(prompt), no_progress)
        self.answer = answer
        self.scored = scored
        self.cached: list[int] = []
        self.restarts = 0

    @property
    def needs_logits(self) -> bool:
        return False

    def wanted_rows(self, count: int) -> list[int]:
        if self.scored:
            return list(range(count))
        return [count - 1] if count == self.missing else []

    def restart(self) -> None:
        super().restart()
        self.restarts += 1
        self.cached = []

    def accept(self, argmax: Array, logits: Array | None) -> None:
        assert logits is None
        if len(argmax) and self.missing == 0:
            generated = len(self.tokens) - self.prompt_length
            if generated == self.answer:
                self.done = True
            else:
                self.tokens.append(100 + generated)

    def cancel_now(self) -> None:
        self.done = True


def run(scheduler: Scheduler, limits: BatchLimits, lost: Collection[int] = ()) -> int:
    """Run until nothing is left, checking each step; the number of steps.

    In the steps `lost` the KV cache is lost with all that they compute.
    """
    steps = 0
    while (step := scheduler.next()) is not None:
        steps += 1
        assert steps < 10_000, "the scheduler makes no progress"
        assert 0 < step.batch.rows <= limits.rows
        assert step.batch.logits_rows <= limits.logits_rows
        assert len(step.sequences) <= limits.sequences
        blocks = [block for chunk in step.batch.chunks for block in chunk.blocks]
        assert len(blocks) == len(set(blocks)), "two sequences share a block"
        for sequence, chunk in zip(step.sequences, step.batch.chunks, strict=True):
            assert isinstance(sequence, Recorded)
            assert chunk.kv_len == sequence.computed + len(chunk.tokens)
            assert len(chunk.blocks) * BLOCK_TOKENS >= chunk.kv_len
        if steps in lost:
            scheduler.restart(limits)
            continue
        for sequence, chunk in zip(step.sequences, step.batch.chunks, strict=True):
            assert isinstance(sequence, Recorded)
            sequence.cached += chunk.tokens
            assert sequence.cached == sequence.tokens[: chunk.kv_len]
            sequence.advance(len(chunk.tokens))
            sequence.accept(np.zeros(len(chunk.logits), np.int32), None)
    return steps


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 90), st.integers(0, 30), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.integers(8, 20),
    st.integers(1, 64),
    st.integers(1, 5),
    st.integers(5, 40),
    st.sets(st.integers(1, 40), max_size=5),
)
def test_every_sequence_ends_complete(
    loads: list[tuple[int, int, bool]],
    blocks: int,
    rows: int,
    most_sequences: int,
    logits_rows: int,
    lost: set[int],
) -> None:
    limits = BatchLimits(rows, most_sequences, logits_rows)
    pool = BlockPool(blocks)
    scheduler = Scheduler(pool, limits)
    sequences = [Recorded(prompt, answer, scored=scored) for prompt, answer, scored in loads]
    for sequence in sequences:
        scheduler.add(sequence)
    run(scheduler, limits, lost)
    assert scheduler.idle
    assert pool.free == blocks
    for sequence in sequences:
        assert sequence.done
        assert sequence.tokens[sequence.prompt_length :] == list(range(100, 100 + sequence.answer))


def test_decode_goes_before_prefill() -> None:
    scheduler = Scheduler(BlockPool(100), BatchLimits(rows=8, sequences=4, logits_rows=4))
    first = Recorded(4, 5)
    scheduler.add(first)
    step = scheduler.next()
    assert step is not None
    first.advance(4)
    first.accept(np.zeros(1, np.int32), None)
    second = Recorded(50, 5)
    scheduler.add(second)
    step = scheduler.next()
    assert step is not None
    assert step.sequences == (first, second)
    assert [len(chunk.tokens) for chunk in step.batch.chunks] == [1, 7]


def test_texts_that_are_scored_share_the_rows_of_logits() -> None:
    scheduler = Scheduler(BlockPool(100), BatchLimits(rows=64, sequences=4, logits_rows=16))
    scored = [Recorded(40, 0, scored=True) for _ in range(2)]
    answered = Recorded(20, 3)
    for sequence in (*scored, answered):
        scheduler.add(sequence)
    step = scheduler.next()
    assert step is not None
    # The prompt is read but for its last token, which would want a row of logits.
    assert step.sequences == (scored[0], answered)
    assert [len(chunk.tokens) for chunk in step.batch.chunks] == [16, 19]
    assert step.batch.logits_rows == 16


def test_the_last_admitted_gives_way_when_the_cache_is_full() -> None:
    scheduler = Scheduler(BlockPool(4), LIMITS)
    first, second = Recorded(16, 40), Recorded(15, 40)
    scheduler.add(first)
    scheduler.add(second)
    run(scheduler, LIMITS)
    assert first.restarts == 0
    assert second.restarts > 0


def test_ended_most_sequencesgive_their_blocks_back() -> None:
    pool = BlockPool(8)
    scheduler = Scheduler(pool, LIMITS)
    running, waiting = Recorded(64, 5), Recorded(64, 5)
    scheduler.add(running)
    scheduler.add(waiting)
    assert scheduler.next() is not None
    assert pool.free < 8
    running.cancel_now()
    waiting.cancel_now()
    assert scheduler.next() is None
    assert pool.free == 8
    assert scheduler.idle
