"""Signals of one queue, handed out and taken back; their memory stays until the queue is closed.

A worker may still look at a signal, to wake whoever waits, after it has counted it down. So its
memory must outlive whoever waited; that it has a new owner by then costs a needless wake at most.
"""

from __future__ import annotations

import threading
import weakref

from crossinfer.aql.signals import SIGNAL_BYTES, Signals
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed
from crossinfer.core.dtypes import Array

_BLOCK_SIGNALS = 64


class OwnedSignals:
    """Some signals of a pool; they go back to it when this object dies."""

    def __init__(self, signals: Signals, initial: int) -> None:
        self.signals = signals
        for index in range(len(signals)):
            signals.reset(index, initial)

    def done(self, index: int = 0) -> bool:
        return self.signals.value(index) <= 0


class SignalPool:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection inside `take` may give signals back
        self._blocks: list[Array] = []
        self._free: dict[int, list[Signals]] = {}

    def take(self, count: int = 1, initial: int = 1) -> OwnedSignals:
        """`count` signals in a row, with the value `initial` and no times. Raises MemoryError."""
        with self._lock:
            free = self._free.setdefault(count, [])
            if not free:
                free += self._new(count)
            signals = free.pop()
        owned = OwnedSignals(signals, initial)
        weakref.finalize(owned, self._give_back, signals)
        return owned

    def _new(self, count: int) -> list[Signals]:
        rows = max(1, _BLOCK_SIGNALS // count)
        size = count * SIGNAL_BYTES
        block = allocate_zeroed(rows * size)
        self._blocks.append(block)
        parts = (block[row * size : (row + 1) * size] for row in range(rows))
        return [Signals(part.data, address_of(part)) for part in parts]

    def _give_back(self, signals: Signals) -> None:
        with self._lock:
            self._free[len(signals)].append(signals)
