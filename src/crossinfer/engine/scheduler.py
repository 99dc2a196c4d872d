"""The scheduler: which rows the next step computes.

Decode rows come first, so that running answers keep flowing; what is left of the step's rows goes
to prefill, in the order of arrival and in chunks. When the KV cache is full, the sequence that was
admitted last gives its blocks up and is computed again later; sampling depends on positions only,
so its tokens stay the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from crossinfer.core.records import record
from crossinfer.engine.batch import Batch, BatchLimits, Chunk
from crossinfer.engine.kv_cache import BlockPool
from crossinfer.engine.sequence import EngineSequence


@record
class ScheduledStep:
    """A batch, and the sequence of each of its chunks."""

    batch: Batch
    sequences: tuple[EngineSequence, ...]


class Scheduler:
    """Holds the sequences that wait and those that run."""

    def __init__(self, pool: BlockPool, limits: BatchLimits) -> None:
        """`pool` must hold the longest sequence that will be added.

        `limits` must have a row of logits for each sequence, since all may decode together.
        """
        self._pool = pool
        self._limits = limits
        self._waiting: deque[EngineSequence] = deque()
        self._running: list[EngineSequence] = []

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, sequence: EngineSequence) -> None:
        self._waiting.append(sequence)

    def all(self) -> list[EngineSequence]:
        """Every sequence that has not ended."""
        return [*self._running, *self._waiting]

    def restart(self, limits: BatchLimits) -> None:
        """The KV cache is gone: whatever runs is computed again from its first token.

        `limits` are those of what runs the steps from here on.
        """
        self._limits = limits
        for sequence in self._running:
            self._pool.release(sequence.blocks)
            sequence.restart()

    def next(self) -> ScheduledStep | None:
        """The next step; None if nothing is left to compute, or all that is left is ahead of its
        callers. Sequences that ended are dropped.
        """
        self._drop_ended()
        self._admit()
        chunks: dict[EngineSequence, Chunk] = {}
        for sequence in self._decode_first():
            count = self._rows_for(sequence, chunks)
            if count == 0 or sequence not in self._running:
                continue
            if not self._make_room(sequence, count, chunks):
                continue
            first = sequence.computed
            chunks[sequence] = Chunk(
                tokens=sequence.tokens[first : first + count],
                kv_len=first + count,
                blocks=tuple(sequence.blocks),
                logits=sequence.wanted_rows(count),
            )
        if not chunks:
            return None
        return ScheduledStep(Batch(tuple(chunks.values())), tuple(chunks))

    def _rows_for(self, sequence: EngineSequence, chunks: Mapping[EngineSequence, Chunk]) -> int:
        """How many rows `sequence` can have of a step that has `chunks` already."""
        step = Batch(tuple(chunks.values()))
        count = min(sequence.missing, self._limits.rows - step.rows)
        # Wanted rows are a chunk's last ones, so each row less is one less of them.
        wanted = len(sequence.wanted_rows(count))
        return count - max(0, wanted - (self._limits.logits_rows - step.logits_rows))

    def _decode_first(self) -> list[EngineSequence]:
        ready = [sequence for sequence in self._running if not sequence.is_ahead]
        if len(ready) > 1:
            # Sorting is stable: within decode and within prefill the order of admission stays.
            ready.sort(key=lambda s: s.missing > 1)
        return ready

    def _drop_ended(self) -> None:
        for sequence in [s for s in self._running if s.done]:
            self._running.remove(sequence)
            self._pool.release(sequence.blocks)
        if self._waiting:
            self._waiting = deque(s for s in self._waiting if not s.done)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._limits.sequences:
            trial: list[int] = []
            fits = self._pool.extend(trial, len(self._waiting[0].tokens) + 1)
            self._pool.release(trial)
            if self._running and not fits:
                return
            self._running.append(self._waiting.popleft())

    def _make_room(
        self, sequence: EngineSequence, count: int, chunks: dict[EngineSequence, Chunk]
    ) -> bool:
        """Give `sequence` blocks for `count` more tokens; False if it had to give way itself."""
        while not self._pool.extend(sequence.blocks, sequence.computed + count):
            victim = self._running.pop()
            self._pool.release(victim.blocks)
            victim.restart()
            self._waiting.appendleft(victim)
            chunks.pop(victim, None)
            if victim is sequence:
                return False
        return True
