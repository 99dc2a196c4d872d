"""Where a row of dispatches is cut, so that a piece keeps within a number and a time.

Times are not known beforehand. A kind of dispatch runs in a piece of its own until it has been
measured, and once in a while again, since drivers compile at the first run and attention grows with
the context. What pieces of several take is at most the sum, unless the device slows down; then all
predictions rise at once, fall slowly, and the kinds that broke the bound are measured anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

from crossinfer.core.records import record
from crossinfer.hal.kernel import Dispatch

# Timers cannot tell less.
_LEAST_S = 1e-7
# Runs of a kind in company between two alone.
_LONGEST_INTERVAL = 256


@record
class Bounds:
    """The most that one piece may hold; None: no bound."""

    dispatches: int | None = None
    seconds: float | None = None
    """Of device time, as predicted. A dispatch cannot be cut, so one alone may take longer."""


UNBOUNDED = Bounds()


def kind_of(dispatch: Dispatch) -> Hashable:
    """Dispatches of one kind take about the same time: kernel, grid and constants are equal."""
    return dispatch.kernel.name, dispatch.grid, dispatch.constants


@dataclasses.dataclass
class _Measured:
    """The time of a kind that ran alone, and how often it may run in company until it is due."""

    seconds: float
    interval: int
    left: int


class CostModel:
    """Predicts the device time of dispatches by their kind, in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Measured] = {}
        self._slowness = 1.0
        """What pieces take, relative to the sum of what their dispatches took alone."""

    def predict(self, kind: Hashable) -> float | None:
        """None for a kind that is to be measured alone."""
        known = self._kinds.get(kind)
        return None if known is None or known.left < 1 else known.seconds * self._slowness

    def learn(self, kinds: Sequence[Hashable], seconds: float, limit: float | None = None) -> None:
        """A piece of these kinds took `seconds`, and should have taken at most `limit`."""
        seconds = max(seconds, _LEAST_S)
        if len(kinds) == 1:
            before = self._kinds.get(kinds[0])
            interval = min(4 * before.interval if before else 4, _LONGEST_INTERVAL)
            self._kinds[kinds[0]] = _Measured(seconds, interval, interval)
            return
        if any(kind not in self._kinds for kind in kinds):
            return  # of a call that bounds no time
        known = [self._kinds[kind] for kind in kinds]
        slowness = seconds / sum(kind.seconds for kind in known)
        if slowness < self._slowness:
            slowness = max(1.0, self._slowness + (slowness - self._slowness) / 16)
        self._slowness = slowness
        for kind in known:
            kind.left = 0 if limit is not None and seconds > limit else kind.left - 1


def end_of_piece(kinds: Sequence[Hashable], start: int, bounds: Bounds, costs: CostModel) -> int:
    """Where the longest piece from `start` that keeps within `bounds` ends; never empty."""
    most = len(kinds) if bounds.dispatches is None else start + max(1, bounds.dispatches)
    end, total = start, 0.0
    while end < min(most, len(kinds)):
        if bounds.seconds is not None:
            cost = costs.predict(kinds[end])
            if cost is None:
                return max(end, start + 1)
            total += cost
            if total > bounds.seconds:
                return max(end, start + 1)
        end += 1
    return end
