"""Choices from large vocabularies against the same ones made in float64, token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.dtypes import Array
from crossinfer.engine.candidates import at_least, draw_from_all, largest, nucleus, weights_of

SIZES = st.sampled_from([1, 2, 127, 128, 129, 1000, 5000])
SPREADS = st.sampled_from([0.0, 0.01, 1.0, 6.0, 1000.0])


def random_scores(seed: int, size: int, spread: float) -> Array:
    """Some of them equal, and some ruled out, but for one."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=spread, size=size).astype(np.float32)
    scores[rng.integers(size, size=size // 10)] = scores[0]
    scores[rng.integers(size, size=size // 10)] = -math.inf
    scores[rng.integers(size)] = 1.5
    return scores


@given(st.integers(0, 1000), SIZES, SPREADS, st.sampled_from([1, 3, 9, 40, 1000, 10_000]))
def test_the_largest_come_first_and_of_equals_the_first(
    seed: int, size: int, spread: float, count: int
) -> None:
    scores = random_scores(seed, size, spread)
    expected = np.argsort(-scores, kind="stable")[:count]
    assert largest(scores, count).tolist() == expected.tolist()


@given(st.integers(0, 1000), SIZES, SPREADS, st.sampled_from([1e-300, 0.1, 0.8, 30.0, 1e39]))
def test_a_nucleus_is_the_fewest_that_reach_the_share(
    seed: int, size: int, spread: float, temperature: float
) -> None:
    scores = random_scores(seed, size, spread)
    weights = weights_of(scores, float(scores.max()), temperature)
    for share in (1e-9, 0.3, 0.95, 0.9999):
        found = nucleus(scores, temperature, share)
        assert np.all(np.diff(scores[found]) <= 0)
        reached, others = weights[found].sum(), np.delete(weights, found)
        # Rounding of the sum of the weights may move the cut by a token that hardly counts.
        assert reached >= share * weights.sum() * (1 - 1e-6)
        assert reached - weights[found[-1]] <= share * weights.sum() * (1 + 1e-6)
        assert not others.size or others.max() <= weights[found].min()


@pytest.mark.parametrize("relative", [1e-6, 0.05, 1.0])
def test_at_least_leaves_nobody_out(relative: float) -> None:
    scores = random_scores(3, 5000, 2.0)
    weights = weights_of(scores, float(scores.max()), 0.7)
    found = set(at_least(scores, 0.7, relative).tolist())
    assert set(np.flatnonzero(weights >= relative).tolist()) <= found
    assert all(weights[token] >= 0.99 * relative for token in found)


@given(
    st.integers(0, 1000),
    SIZES,
    SPREADS,
    st.sampled_from([1e-300, 0.7, 2.0, 1e39]),
    st.one_of(st.floats(0, 1, exclude_max=True), st.just(1 - 2.0**-53), st.just(0.0)),
)
def test_a_draw_is_where_the_sum_passes_it(
    seed: int, size: int, spread: float, temperature: float, uniform: float
) -> None:
    scores = random_scores(seed, size, spread)
    weights = weights_of(scores, float(scores.max()), temperature)
    sums = np.cumsum(weights) / weights.sum()
    token = draw_from_all(scores, temperature, uniform)
    assert scores[token] > -math.inf
    assert sums[token] >= uniform - 1e-6
    assert token == 0 or sums[token - 1] <= uniform + 1e-6


def test_draws_from_all_have_the_weights_shares() -> None:
    scores = random_scores(5, 300, 1.0)
    weights = weights_of(scores, float(scores.max()), 0.8)
    draws = (np.arange(200_000) + 0.5) / 200_000
    counts = np.bincount([draw_from_all(scores, 0.8, u) for u in draws[::20]], minlength=300)
    shares = counts / counts.sum()
    # A token's share of evenly spaced draws is off by one draw at each end at most.
    assert np.all(np.abs(shares - weights / weights.sum()) <= 2 / counts.sum())


def test_a_draw_never_falls_behind_the_last_weight() -> None:
    scores = np.full(300, -math.inf, np.float32)
    scores[7] = 2.0
    for uniform in (0.0, 0.5, 1 - 2.0**-53):
        assert draw_from_all(scores, 1.0, uniform) == 7
