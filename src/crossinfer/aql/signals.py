"""Signals: 64-bit values in shared memory that a queue counts down when packets complete.

The layout is that of `amd_signal_t`, 64 bytes: kind (i64 at 0, 1 for a user's signal), value (i64
at 8), start and end of the packet that counted it down last (u64 at 32 and 40, in the ticks of the
agent's clock). A signal at 0 or below is done.
"""

from __future__ import annotations

SIGNAL_BYTES = 64
USER_KIND = 1

VALUE_OFFSET = 8
NOTIFY_OFFSET = 24
"""u32, `event_id` in `amd_signal_t`: what an agent needs to know to wake whoever waits."""
START_OFFSET = 32
END_OFFSET = 40


class Signals:
    """A row of signals in `memory`, which lies at `address` and is kept mapped by the caller.

    Values are read and written as single 64-bit loads and stores.
    """

    def __init__(self, memory: memoryview, address: int) -> None:
        self._address = address
        self._signed = memory.cast("B").cast("q")
        self._unsigned = memory.cast("B").cast("Q")

    def __len__(self) -> int:
        return len(self._signed) * 8 // SIGNAL_BYTES

    def reset(self, index: int, value: int) -> None:
        """Make the signal a user's one with this value and without times."""
        start = index * SIGNAL_BYTES // 8
        for word in range(start, start + SIGNAL_BYTES // 8):
            self._signed[word] = 0
        self.store(index, value)
        self._signed[start] = USER_KIND

    def address(self, index: int) -> int:
        """What a packet's completion signal and dependencies are given as."""
        return self._address + index * SIGNAL_BYTES

    def store(self, index: int, value: int) -> None:
        self._signed[(index * SIGNAL_BYTES + VALUE_OFFSET) // 8] = value

    def value(self, index: int) -> int:
        return self._signed[(index * SIGNAL_BYTES + VALUE_OFFSET) // 8]

    def times(self, index: int) -> tuple[int, int]:
        """Start and end of the last packet that completed with this signal, (0, 0) before."""
        first = index * SIGNAL_BYTES // 8
        words = self._unsigned
        return words[first + START_OFFSET // 8], words[first + END_OFFSET // 8]
