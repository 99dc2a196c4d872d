"""Which commands need a barrier between them: decided here, once, for every backend."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from crossinfer.core.records import record
from crossinfer.hal.buffer import Binding, Buffer, View


class HazardKind(enum.Enum):
    READ_AFTER_WRITE = "read after write"
    WRITE_AFTER_READ = "write after read"
    WRITE_AFTER_WRITE = "write after write"


@record
class Hazard:
    """A range that an earlier command touches and this one does, at least one of them writing."""

    kind: HazardKind
    view: View


@record
class Barrier:
    """Every earlier command finishes before the next starts; `hazards` says why."""

    hazards: tuple[Hazard, ...]


class HazardTracker:
    """Remembers who read and wrote which ranges since the last barrier.

    Greedy: a barrier is placed as late as possible, and it clears the memory, so the number of
    barriers is the smallest that the order of the commands allows.
    """

    def __init__(self) -> None:
        self._since_barrier: dict[Buffer, list[Binding]] = {}

    def before(self, bindings: Sequence[Binding]) -> Barrier | None:
        """The barrier that a command with these bindings needs before it, if any; records it."""
        hazards = tuple(
            Hazard(kind, binding.view)
            for binding in bindings
            for earlier in self._since_barrier.get(binding.view.buffer, ())
            if (kind := _conflict(earlier, binding)) is not None
        )
        if hazards:
            self.clear()
        for binding in bindings:
            self._since_barrier.setdefault(binding.view.buffer, []).append(binding)
        return Barrier(hazards) if hazards else None

    def clear(self) -> None:
        """Everything so far has finished (a timestamp drained the queue)."""
        self._since_barrier.clear()


def _conflict(earlier: Binding, later: Binding) -> HazardKind | None:
    if not (earlier.writes or later.writes) or not earlier.view.overlaps(later.view):
        return None
    if earlier.writes:
        return HazardKind.READ_AFTER_WRITE if later.reads else HazardKind.WRITE_AFTER_WRITE
    return HazardKind.WRITE_AFTER_READ
