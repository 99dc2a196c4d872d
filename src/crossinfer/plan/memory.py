"""Activation memory: tensors that never live at the same time share it.

Greedy by size, largest first, each at the lowest offset that is free during its whole life: the
"greedy by size" strategy of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference" (2020).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT


@dataclasses.dataclass(frozen=True)
class Interval:
    """A piece of memory that is needed from step `first` to step `last`, both included."""

    key: Hashable
    size: int
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclasses.dataclass(frozen=True)
class Region:
    """Bytes `offset … offset + size` of a buffer."""

    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Arena:
    """One buffer for many tensors: its size, and each key's region."""

    size: int
    regions: Mapping[Hashable, Region]


def pack(intervals: Sequence[Interval]) -> Arena:
    """Regions such that intervals that meet in time never share a byte. Offsets are aligned."""
    placed: list[tuple[Interval, Region]] = []
    for interval in sorted(intervals, key=lambda i: (-i.size, i.first)):
        busy = sorted(
            (region for other, region in placed if other.meets(interval)),
            key=lambda region: region.offset,
        )
        offset = 0
        for region in busy:
            if region.offset - offset >= interval.size:
                break
            offset = max(offset, align_up(region.offset + region.size, VIEW_ALIGNMENT))
        placed.append((interval, Region(offset, interval.size)))
    size = max((region.offset + region.size for _, region in placed), default=0)
    return Arena(
        align_up(size, VIEW_ALIGNMENT), {interval.key: region for interval, region in placed}
    )


def consecutive(sizes: Mapping[str, int]) -> Arena:
    """Regions one after another, for tables that all live at once."""
    regions: dict[Hashable, Region] = {}
    offset = 0
    for name, size in sizes.items():
        regions[name] = Region(offset, size)
        offset += align_up(size, VIEW_ALIGNMENT)
    return Arena(offset, regions)
