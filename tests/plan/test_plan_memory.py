"""Activation memory: what lives at the same time never shares a byte."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.core.shapes import align_up
from crossinfer.plan.memory import (
    Arena,
    Interval,
    Region,
    _Placed,
    consecutive,
    pack,
    pack_apart,
)


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(0, 20))
    made = []
    for key in range(count):
        first = draw(st.integers(0, 12))
        size = draw(st.sampled_from([1, 4, 255, 256, 257, 1000, 4096]))
        made.append(Interval(key, size, first, first + draw(st.integers(0, 6))))
    return made


def overlap(a: Region, b: Region) -> bool:
    return a.offset < b.offset + b.size and b.offset < a.offset + a.size


@settings(deadline=None)
@given(intervals())
def test_intervals_that_meet_share_no_byte(given: list[Interval]) -> None:
    regions = pack(given).regions
    for number, a in enumerate(given):
        for b in given[:number]:
            if a.first <= b.last and b.first <= a.last:
                assert not overlap(regions[a.key], regions[b.key]), (a, b)


@settings(deadline=None)
@given(intervals())
def test_regions_are_aligned_and_within_the_arena(given: list[Interval]) -> None:
    arena = pack(given)
    assert arena.regions.keys() == {interval.key for interval in given}
    assert arena.size % 256 == 0
    for interval in given:
        region = arena.regions[interval.key]
        assert region.offset % 256 == 0
        assert region.size == interval.size
        assert region.offset >= 0
        assert region.offset + region.size <= arena.size


@settings(deadline=None)
@given(intervals())
def test_the_size_is_between_its_bounds(given: list[Interval]) -> None:
    size = pack(given).size
    assert size <= sum(align_up(interval.size, 256) for interval in given)
    for time in range(20):
        alive = [i.size for i in given if i.first <= time <= i.last]
        assert size >= sum(align_up(one, 256) for one in alive) - 255 * len(alive)


@settings(deadline=None)
@given(intervals())
def test_packing_is_deterministic(given: list[Interval]) -> None:
    assert pack(given) == pack(list(given))


@settings(deadline=None)
@given(intervals())
def test_each_lies_at_the_lowest_offset_that_was_free(given: list[Interval]) -> None:
    regions = pack(given).regions
    before: list[Interval] = []
    for interval in sorted(given, key=lambda i: (-i.size, i.first)):
        others = [regions[other.key] for other in before if other.meets(interval)]
        lower = range(0, regions[interval.key].offset, 256)
        assert all(
            any(overlap(Region(offset, interval.size), other) for other in others)
            for offset in lower
        )
        before.append(interval)


def test_short_lives_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    during = _Placed.during

    def counted(placed: _Placed, interval: Interval) -> list[Region]:
        nonlocal compared
        found = during(placed, interval)
        compared += len(found)
        return found

    monkeypatch.setattr(_Placed, "during", counted)
    sizes = random.Random(1).choices([256, 512, 4096], k=3000)
    pack([Interval(n, size, n, n + 2) for n, size in enumerate(sizes)])
    assert compared <= 4 * 3000


def test_a_chain_takes_the_memory_of_two() -> None:
    chain = [Interval(n, 1024, n, n + 1) for n in range(50)]
    assert pack(chain).size == 2 * 1024


def test_a_gap_is_used() -> None:
    arena = pack(
        [
            Interval("low", 1024, 0, 9),
            Interval("gone", 512, 0, 1),
            Interval("high", 512, 0, 9),
            Interval("late", 512, 2, 3),
        ]
    )
    assert arena.size == 2048
    assert arena.regions["late"] == arena.regions["gone"]


def test_the_order_given_does_not_change_the_size_of_distinct_sizes() -> None:
    given = [Interval(n, 256 * (n + 1), n % 5, n % 5 + n % 3) for n in range(12)]
    shuffled = random.Random(1).sample(given, len(given))
    assert pack(shuffled).regions == pack(given).regions


def test_nothing() -> None:
    assert pack([]) == Arena(0, {})
    assert consecutive({}) == Arena(0, {})


def test_consecutive() -> None:
    arena = consecutive({"a": 4, "b": 256, "c": 300, "d": 1})
    assert arena.regions == {
        "a": Region(0, 4),
        "b": Region(256, 256),
        "c": Region(512, 300),
        "d": Region(1024, 1),
    }
    assert arena.size == 1280


@settings(deadline=None)
@given(intervals())
def test_intervals_that_meet_share_no_buffer_when_packed_apart(given: list[Interval]) -> None:
    arena = pack_apart(given)
    places = {interval.key: arena.place(arena.regions[interval.key]) for interval in given}
    sizes = arena.buffer_sizes()
    assert sum(sizes) == arena.size
    assert all(size % 256 == 0 for size in sizes)
    for number, a in enumerate(given):
        buffer, offset = places[a.key]
        assert offset == 0
        assert a.size <= sizes[buffer]
        for b in given[:number]:
            if a.first <= b.last and b.first <= a.last:
                assert buffer != places[b.key][0]


@settings(deadline=None)
@given(intervals())
def test_packed_apart_there_are_no_more_buffers_than_needed(given: list[Interval]) -> None:
    arena = pack_apart(given)
    largest = sorted((align_up(i.size, 256) for i in given), reverse=True)
    count = len(arena.buffer_sizes())
    assert arena.size == sum(arena.buffer_sizes()) <= sum(largest[:count])


def test_an_arena_that_is_not_cut_is_one_buffer() -> None:
    arena = pack([Interval(n, 1024, n, n + 1) for n in range(5)])
    assert arena.buffer_sizes() == [arena.size]
    assert {arena.place(region)[0] for region in arena.regions.values()} == {0}
    assert Arena(0, {}).buffer_sizes() == []
