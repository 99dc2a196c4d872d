"""The free ranges of a block: nothing overlaps, nothing is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossinfer.backends.vulkan.ranges import FreeRanges

_SIZE = 64


@given(st.lists(st.integers(1, 20) | st.integers(-10, -1), max_size=60))
def test_ranges_never_overlap_and_all_come_back(steps: list[int]) -> None:
    """Positive steps take so much; negative ones give one of the taken ranges back."""
    ranges, taken = FreeRanges(_SIZE), list[tuple[int, int]]()
    for step in steps:
        if step < 0:
            if taken:
                ranges.give_back(*taken.pop(step % len(taken)))
            continue
        used = {byte for offset, size in taken for byte in range(offset, offset + size)}
        offset = ranges.take(step)
        free = [all(b not in used for b in range(o, o + step)) for o in range(_SIZE - step + 1)]
        assert (offset is None) == (not any(free))
        if offset is not None:
            assert free[offset]
            taken.append((offset, step))
    for offset, size in taken:
        ranges.give_back(offset, size)
    assert ranges.all_free
    assert ranges.take(_SIZE) == 0


def test_the_smallest_gap_that_fits_is_taken() -> None:
    ranges = FreeRanges(100)
    offsets = [ranges.take(size) for size in (30, 10, 10, 10, 40)]
    assert offsets == [0, 30, 40, 50, 60]
    ranges.give_back(0, 30)
    ranges.give_back(40, 10)
    assert ranges.take(8) == 40
    assert ranges.take(30) == 0
    assert ranges.take(3) is None
