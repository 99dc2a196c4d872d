"""How long-running work reports how far it is, without knowing who watches."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives updates of one task. Implementations must be cheap and must not raise."""

    def __call__(self, task: str, done: int, total: int, /) -> None:
        """`task` says what is being done; `done` of `total` units (bytes, tokens) are finished."""


def no_progress(_task: str, _done: int, _total: int) -> None:
    """Nobody watches."""
