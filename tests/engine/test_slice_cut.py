"""Where dispatches are cut: every bound holds, and nothing is left out, with times of our own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.engine.slice_cut import Bounds, CostModel, end_of_piece, kind_of
from crossinfer.hal.kernel import Dispatch, Kernel

KINDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=60)
TIMES = st.fixed_dictionaries({kind: st.floats(1e-6, 5e-3) for kind in "abcdef"})
BOUNDS = st.builds(
    Bounds,
    dispatches=st.none() | st.integers(1, 70),
    seconds=st.none() | st.floats(1e-6, 2e-2),
)


def run_pass(
    kinds: Sequence[str], bounds: Bounds, costs: CostModel, times: Mapping[str, float]
) -> list[int]:
    """Cut all of `kinds`, tell the times that pieces take, and return the ends of the pieces."""
    ends, start = [], 0
    while start < len(kinds):
        end = end_of_piece(kinds, start, bounds, costs)
        if bounds.seconds is not None:
            costs.learn(kinds[start:end], time_of(kinds[start:end], times), bounds.seconds)
        ends.append(end)
        start = end
    return ends


def time_of(piece: Sequence[str], times: Mapping[str, float]) -> float:
    return sum(times[kind] for kind in piece)


def excess(kinds: Sequence[str], ends: Sequence[int], times: Mapping[str, float]) -> float:
    """The time of the longest piece of several."""
    pieces = [kinds[start:end] for start, end in itertools.pairwise([0, *ends])]
    return max((time_of(piece, times) for piece in pieces if len(piece) > 1), default=0.0)


@given(KINDS, TIMES, st.lists(BOUNDS, min_size=1, max_size=4))
def test_pieces_keep_both_bounds_when_times_are_steady(
    kinds: list[str], times: dict[str, float], several: list[Bounds]
) -> None:
    costs = CostModel()
    for bounds in several:  # what is known under one bound counts under the next
        ends = run_pass(kinds, bounds, costs, times)
        starts = [0, *ends[:-1]]
        assert ends[-1] == len(kinds)
        assert all(start < end for start, end in zip(starts, ends, strict=True))
        if bounds.dispatches is not None:
            lengths = [end - start for start, end in zip(starts, ends, strict=True)]
            assert max(lengths) <= bounds.dispatches
        if bounds.seconds is not None:
            assert excess(kinds, ends, times) <= bounds.seconds * (1 + 1e-9)


@given(KINDS, TIMES, st.floats(1e-6, 2e-2))
def test_pieces_are_as_long_as_the_time_allows(
    kinds: list[str], times: dict[str, float], seconds: float
) -> None:
    costs, bounds = CostModel(), Bounds(seconds=seconds)
    for kind in kinds:
        if costs.predict(kind) is None:
            costs.learn([kind], times[kind])
    start = 0
    while start < len(kinds):
        end = end_of_piece(kinds, start, bounds, costs)
        one_more = sum(times[kind] for kind in kinds[start : end + 1])
        assert end == len(kinds) or one_more > seconds * (1 - 1e-9)
        start = end


@given(KINDS, TIMES, st.floats(1e-4, 2e-2), st.sets(st.sampled_from("abcdef")), st.floats(1, 8))
def test_what_slows_down_breaks_the_time_only_until_it_is_measured_anew(
    kinds: list[str], times: dict[str, float], seconds: float, slow: set[str], slower: float
) -> None:
    """One kind, as attention does while the context grows, or all, when a host draws more."""
    costs, bounds = CostModel(), Bounds(seconds=seconds)
    for _ in range(2):
        run_pass(kinds, bounds, costs, times)
    after = {kind: time * (slower if kind in slow else 1) for kind, time in times.items()}
    for number in range(14):
        ends = run_pass(kinds, bounds, costs, after)
        most = seconds * (slower if number < 10 else 1)
        assert excess(kinds, ends, after) <= most * (1 + 1e-9)


@given(KINDS, TIMES)
def test_a_first_run_that_takes_long_is_forgotten(
    kinds: list[str], times: dict[str, float]
) -> None:
    """Drivers compile then."""
    costs, bounds = CostModel(), Bounds(seconds=1.0)
    for kind in set(kinds):
        costs.learn([kind], 1000 * times[kind])
    for _ in range(40):
        run_pass(kinds, bounds, costs, times)
    repeated = kinds.count(kinds[0]) > 1
    predicted = costs.predict(kinds[0])
    if repeated and predicted is not None:
        assert predicted == pytest.approx(times[kinds[0]], rel=0.5)


def test_what_was_never_measured_runs_alone() -> None:
    costs, bounds = CostModel(), Bounds(seconds=1.0)
    kinds = ["a", "a", "b", "a"]
    assert end_of_piece(kinds, 0, bounds, costs) == 1
    costs.learn(["a"], 0.1)
    assert end_of_piece(kinds, 0, bounds, costs) == 2
    assert end_of_piece(kinds, 2, bounds, costs) == 3
    costs.learn(["b", "a"], 0.5)  # of a call that bounds no time
    assert costs.predict("b") is None
    costs.learn(["b"], 0.1)
    assert end_of_piece(kinds, 0, bounds, costs) == 4


def test_a_device_that_is_slower_is_expected_to_stay_so_for_a_while() -> None:
    costs = CostModel()
    costs.learn(["a"], 1.0)
    costs.learn(["b"], 3.0)
    costs.learn(["a", "b"], 8.0, limit=10.0)
    assert costs.predict("a") == pytest.approx(2.0)
    assert costs.predict("b") == pytest.approx(6.0)
    costs.learn(["a", "b"], 4.0, limit=10.0)
    assert costs.predict("a") == pytest.approx(2.0 - 1 / 16)
    costs.learn(["a", "b"], 1.0, limit=10.0)  # kernels overlap; alone they would not
    for _ in range(3):
        costs.learn(["a"], 1.0)
    assert 1.0 <= (costs.predict("a") or 0) < 2.0


def test_what_broke_the_bound_is_measured_anew() -> None:
    costs, bounds = CostModel(), Bounds(seconds=10.0)
    for kind in "abc":
        costs.learn([kind], 1.0)
    costs.learn(["a", "b"], 11.0, limit=10.0)
    assert costs.predict("a") is None
    assert costs.predict("b") is None
    assert costs.predict("c") == pytest.approx(5.5)
    assert end_of_piece(["c", "a", "c"], 0, bounds, costs) == 1
    assert end_of_piece(["a", "c"], 0, bounds, costs) == 1


def test_kinds_differ_by_kernel_grid_and_constants() -> None:
    kernel = Kernel("linear", None)
    one = Dispatch(kernel, (), b"1", (4, 1, 1), "q")
    assert kind_of(one) == kind_of(Dispatch(kernel, (), b"1", (4, 1, 1), "k"))
    for other in (
        Dispatch(kernel, (), b"2", (4, 1, 1)),
        Dispatch(kernel, (), b"1", (5, 1, 1)),
        Dispatch(Kernel("embed", None), (), b"1", (4, 1, 1)),
    ):
        assert kind_of(one) != kind_of(other)
