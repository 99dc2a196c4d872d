"""The free ranges of a block of memory."""

from __future__ import annotations

import bisect


class FreeRanges:
    """Hands out ranges of `size` bytes, each from the smallest gap that holds it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._gaps = [(0, size)]
        """(offset, size), by offset; no two touch."""

    @property
    def all_free(self) -> bool:
        return self._gaps == [(0, self._size)]

    def take(self, size: int) -> int | None:
        """The offset of `size` bytes, which are then taken; None if no gap is large enough."""
        fitting = [(room, offset) for offset, room in self._gaps if room >= size]
        if not fitting:
            return None
        room, offset = min(fitting)
        position = self._gaps.index((offset, room))
        rest = [(offset + size, room - size)] if room > size else []
        self._gaps[position : position + 1] = rest
        return offset

    def give_back(self, offset: int, size: int) -> None:
        """Free a range that was taken; it joins the gaps that it touches."""
        position = bisect.bisect(self._gaps, (offset, size))
        if position < len(self._gaps) and self._gaps[position][0] == offset + size:
            size += self._gaps.pop(position)[1]
        if position and sum(self._gaps[position - 1]) == offset:
            before = self._gaps.pop(position - 1)
            position, offset, size = position - 1, before[0], before[1] + size
        self._gaps.insert(position, (offset, size))
