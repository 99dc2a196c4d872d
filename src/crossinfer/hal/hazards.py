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
        self._since_barrier: dict[Buffer, list[tuple[int, int, bool]]] = {}
        """Ranges from first byte to end, and whether they were written: a recording has thousands.
        """

    def before(self, bindings: Sequence[Binding]) -> Barrier | None:
        """The barrier that a command with these bindings needs before it, if any; records it."""
        since = self._since_barrier
        hazards: list[Hazard] = []
        touched: list[tuple[Buffer, tuple[int, int, bool]]] = []
        for binding in bindings:
            view, writes = binding.view, binding.writes
            first = view.offset
            end = first + view.size
            touched.append((view.buffer, (first, end, writes)))
            for earlier_first, earlier_end, was_written in since.get(view.buffer, ()):
                if (writes or was_written) and first < earlier_end and earlier_first < end:
                    hazards.append(Hazard(_kind(was_written, binding), view))
        if hazards:
            self.clear()
        for buffer, extent in touched:
            since.setdefault(buffer, []).append(extent)
        return Barrier(tuple(hazards)) if hazards else None

    def clear(self) -> None:
        """Everything so far has finished (a timestamp drained the queue)."""
        self._since_barrier.clear()


def _kind(was_written: bool, later: Binding) -> HazardKind:
    if not was_written:
        return HazardKind.WRITE_AFTER_READ
    return HazardKind.READ_AFTER_WRITE if later.reads else HazardKind.WRITE_AFTER_WRITE
