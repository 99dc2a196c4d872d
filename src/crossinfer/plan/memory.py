"""Activation memory: tensors that never live at the same time share it.

Greedy by size, largest first, each at the lowest offset that is free during its whole life: the
"greedy by size" strategy of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference" (2020).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Mapping, Sequence

from crossinfer.core.records import record
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT


@record
class Interval:
    """A piece of memory that is needed from step `first` to step `last`, both included."""

    key: Hashable
    size: int
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


@record
class Region:
    """Bytes `offset … offset + size` of a buffer."""

    offset: int
    size: int


@record
class Arena:
    """Memory for many tensors: its size, and each key's region.

    One buffer, or several where it is cut: `cuts` are the offsets at which a further one starts,
    ascending. No region crosses a cut.
    """

    size: int
    regions: Mapping[Hashable, Region]
    cuts: tuple[int, ...] = ()

    def buffer_sizes(self) -> list[int]:
        """The bytes of each buffer, in order; none for an empty arena."""
        borders = [0, *self.cuts, self.size]
        return [end - start for start, end in itertools.pairwise(borders)] if self.size else []

    def place(self, region: Region) -> tuple[int, int]:
        """The number of the region's buffer, and its offset there."""
        number = bisect.bisect_right(self.cuts, region.offset)
        return number, region.offset - (self.cuts[number - 1] if number else 0)


def pack(intervals: Sequence[Interval]) -> Arena:
    """Regions such that intervals that meet in time never share a byte. Offsets are aligned."""
    placed = _Placed()
    for interval in sorted(intervals, key=lambda i: (-i.size, i.first)):
        offset = 0
        for region in sorted(placed.during(interval), key=lambda region: region.offset):
            if region.offset - offset >= interval.size:
                break
            offset = max(offset, align_up(region.offset + region.size, VIEW_ALIGNMENT))
        placed.add(interval, Region(offset, interval.size))
    size = max((region.offset + region.size for region in placed.regions.values()), default=0)
    return Arena(align_up(size, VIEW_ALIGNMENT), placed.regions)


class _Placed:
    """Regions by the steps of their lives.

    Activations live for a few steps of hundreds, so those of other times are not even looked at.
    """

    def __init__(self) -> None:
        self.regions: dict[Hashable, Region] = {}
        self._beginning: dict[int, list[Region]] = {}
        self._carried: dict[int, list[Region]] = {}
        """Those that began before a step and are needed in it."""

    def add(self, interval: Interval, region: Region) -> None:
        self.regions[interval.key] = region
        self._beginning.setdefault(interval.first, []).append(region)
        for step in range(interval.first + 1, interval.last + 1):
            self._carried.setdefault(step, []).append(region)

    def during(self, interval: Interval) -> list[Region]:
        """The regions whose lives meet that of `interval`, each once."""
        found = list(self._carried.get(interval.first, ()))
        for step in range(interval.first, interval.last + 1):
            found += self._beginning.get(step, ())
        return found


def pack_apart(intervals: Sequence[Interval]) -> Arena:
    """As `pack`, but intervals that meet in time never share a buffer either.

    The "greedy by size" strategy of the same paper for shared objects: each interval takes the
    first buffer that nothing holds during its life, and being the largest left it decides the size
    of a buffer that it opens.
    """
    buffers: list[list[Interval]] = []
    for interval in sorted(intervals, key=lambda i: (-i.size, i.first)):
        free = (held for held in buffers if not any(other.meets(interval) for other in held))
        found = next(free, None)
        if found is None:
            found = []
            buffers.append(found)
        found.append(interval)
    regions: dict[Hashable, Region] = {}
    starts = [0]
    for held in buffers:
        regions |= {interval.key: Region(starts[-1], interval.size) for interval in held}
        starts.append(starts[-1] + align_up(held[0].size, VIEW_ALIGNMENT))
    return Arena(starts[-1], regions, tuple(starts[1:-1]))


def consecutive(sizes: Mapping[str, int]) -> Arena:
    """Regions one after another, for tables that all live at once."""
    regions: dict[Hashable, Region] = {}
    offset = 0
    for name, size in sizes.items():
        regions[name] = Region(offset, size)
        offset += align_up(size, VIEW_ALIGNMENT)
    return Arena(offset, regions)
