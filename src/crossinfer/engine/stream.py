"""The caller's end of a generation: an iterator over pieces of text."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from crossinfer.core.errors import CrossinferError, DeviceWarning
from crossinfer.engine.engine import Engine
from crossinfer.engine.generation import Generation
from crossinfer.engine.sequence import EngineSequence, GenerationSequence, Notice, Outcome

# Waits are cut into pieces, so that Ctrl-C comes through on every platform.
_POLL_S = 0.5


def next_outcome(
    engine: Engine, sequence: EngineSequence, timeout_s: float | None = None
) -> Outcome | None:
    """The next outcome of a sequence; errors are returned. Waits as long as the engine lives.

    Notices on the way become warnings, here on the caller's thread.

    None if there is none within `timeout_s` (None: no limit).
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        alive = engine.alive
        left = _POLL_S if end is None else max(0.0, min(_POLL_S, end - time.monotonic()))
        try:
            outcome = sequence.outcomes.get(timeout=left)
        except queue.Empty:
            if not alive:
                return CrossinferError("The engine stopped before the request had ended.")
            if end is not None and time.monotonic() >= end:
                return None
            continue
        if not isinstance(outcome, Notice):
            return outcome
        warnings.warn(outcome.text, DeviceWarning, stacklevel=2)


class Stream(Iterator[str]):
    """Pieces of text as they are generated; they join to `result().text`.

    Used up or not, `result` gives the whole generation. Closing it early (also by leaving a `with`
    block, or by dropping it) ends the generation with finish_reason "cancelled".
    """

    def __init__(self, engine: Engine, sequence: GenerationSequence, *, owner: object) -> None:
        """`owner` closes the engine when it is dropped, and so is kept."""
        self._owner = owner
        self._engine = engine
        self._sequence = sequence
        self._end: Generation | CrossinferError | None = None

    def __next__(self) -> str:
        piece = self.next_piece()
        if piece is None:
            raise StopIteration
        return piece

    def next_piece(self, timeout_s: float | None = None) -> str | None:
        """The next piece; None after the last one, "" if none came within `timeout_s` seconds.

        Raises what ended the generation, if it failed.
        """
        if self._end is None:
            outcome = next_outcome(self._engine, self._sequence, timeout_s)
            if outcome is None:
                return ""
            if isinstance(outcome, str):
                return outcome
            assert isinstance(outcome, Generation | CrossinferError)
            self._end = outcome
        if isinstance(self._end, CrossinferError):
            raise self._end
        return None

    @property
    def generation(self) -> Generation | None:
        """The generation, once it has ended and its pieces were read.

        Raises what ended it, if it failed.
        """
        if isinstance(self._end, CrossinferError):
            raise self._end
        return self._end

    def result(self) -> Generation:
        """The generation, after reading what is left of it. Raises what ended it, if it failed."""
        for _ in self:
            pass
        assert isinstance(self._end, Generation)
        return self._end

    def close(self) -> None:
        """Ask for no more; `result` then has what was generated so far."""
        if self._end is None:
            self._engine.cancel(self._sequence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
