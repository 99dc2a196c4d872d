"""Samplers against their definitions, computed the slow way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceError, RequestError
from crossinfer.engine.sampling import Sampler, SamplingParams

LOGITS = np.array([1.0, 3.0, 2.0, 0.5, 2.9, -1.0], dtype=np.float32)


def drawn(params: SamplingParams, logits: Array = LOGITS, draws: int = 400) -> Array:
    """How often each token is chosen over different positions."""
    sampler = Sampler(params, seed=1)
    tokens = [sampler.choose(logits, [0] * position, []) for position in range(draws)]
    counts: Array = np.bincount(tokens, minlength=len(logits))
    shares: Array = counts / draws
    return shares


def softmax(scores: Array) -> Array:
    weights: Array = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    sampler = Sampler(SamplingParams(), seed=0)
    assert sampler.choose(LOGITS, [], []) == 1
    assert sampler.choose(np.array([2, 5, 5], np.float32), [], []) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    expected = softmax(LOGITS.astype(float) / temperature)
    frequencies = drawn(SamplingParams(temperature=temperature), draws=4000)
    # Four standard deviations of a binomial share at 4,000 draws.
    assert np.all(np.abs(frequencies - expected) < 4 * np.sqrt(expected / 4000))


def test_tiny_temperature_is_greedy() -> None:
    assert drawn(SamplingParams(temperature=1e-300), draws=50)[1] == 1


def test_top_k_keeps_k() -> None:
    kept = drawn(SamplingParams(temperature=1.0, top_k=3)) > 0
    assert kept.tolist() == [False, True, True, False, True, False]
    assert drawn(SamplingParams(temperature=5.0, top_k=1))[1] == 1


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    order = np.argsort(-LOGITS)
    cumulative = np.cumsum(softmax(LOGITS.astype(float))[order])
    for count in range(1, 5):
        p = float(cumulative[count - 1]) - 1e-4
        kept = drawn(SamplingParams(temperature=1.0, top_p=p), draws=3000) > 0
        assert set(np.flatnonzero(kept)) == set(order[:count])


def test_min_p_is_relative_to_the_likeliest() -> None:
    probabilities = softmax(LOGITS.astype(float))
    expected = probabilities >= 0.3 * probabilities.max()
    kept = drawn(SamplingParams(temperature=1.0, min_p=0.3), draws=2000) > 0
    assert kept.tolist() == expected.tolist()


def test_repeat_penalty_divides_positive_and_multiplies_negative() -> None:
    logits = np.array([2.0, 1.5, -1.0, -1.2], np.float32)
    sampler = Sampler(SamplingParams(repeat_penalty=2.0), seed=0)
    assert sampler.choose(logits, [0], []) == 1
    assert sampler.choose(logits, [0], [1]) == 0
    only_negative = np.array([-1.0, -1.5], np.float32)
    assert sampler.choose(only_negative, [], [0]) == 1


def test_presence_and_frequency_count_the_answer_only() -> None:
    logits = np.array([2.0, 1.5], np.float32)
    presence = Sampler(SamplingParams(presence_penalty=1.0), seed=0)
    assert presence.choose(logits, [0, 0], []) == 0
    assert presence.choose(logits, [], [0]) == 1
    frequency = Sampler(SamplingParams(frequency_penalty=0.2), seed=0)
    assert frequency.choose(logits, [], [0, 0]) == 0
    assert frequency.choose(logits, [], [0, 0, 0]) == 1


def test_logit_bias_lifts_and_rules_out() -> None:
    assert Sampler(SamplingParams(logit_bias={3: 10.0}), seed=0).choose(LOGITS, [], []) == 3
    ruled_out = SamplingParams(logit_bias={1: -math.inf}, temperature=1.0)
    assert drawn(ruled_out)[1] == 0


def slowly_kept(params: SamplingParams, logits: Array) -> set[int]:
    """The tokens that may be drawn, by the definitions, from one sorted list."""
    order = np.argsort(-logits.astype(float), kind="stable")[: params.top_k or None]
    probabilities = softmax(logits.astype(float)[order] / params.temperature)
    before = np.cumsum(probabilities) - probabilities
    keep = (before < params.top_p) & (probabilities >= params.min_p * probabilities[0])
    return {int(token) for token in order[keep]}


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 40},
        {"top_k": 3000, "top_p": 0.8},
        {"top_p": 0.9},
        {"top_p": 0.5, "min_p": 0.2},
        {"min_p": 0.05},
        {"top_k": 50_000, "top_p": 0.97, "min_p": 0.001},
    ],
)
def test_large_vocabularies_are_cut_by_the_same_rules(
    spread: float, options: dict[str, Any]
) -> None:
    logits = np.random.default_rng(1).normal(scale=spread, size=20_000).astype(np.float32)
    params = SamplingParams(temperature=0.9, **options)
    tokens, weights = Sampler(params, 0)._kept(logits)
    assert set(tokens.tolist()) == slowly_kept(params, logits)
    expected = np.exp((logits[tokens].astype(float) - logits.max()) / 0.9)
    assert np.allclose(weights, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "fields",
    [
        {"repeat_penalty": 1e-320},
        {"logit_bias": {1: 1.7e308}, "frequency_penalty": -1e308},
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_overflow_are_an_error(fields: dict[str, Any], temperature: float) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature, **fields), seed=0)
    with pytest.raises(RequestError, match="so large that a logit overflows"):
        sampler.choose(LOGITS, [1], [1, 1])


def test_ruling_out_every_token_is_an_error() -> None:
    params = SamplingParams(logit_bias=dict.fromkeys(range(6), -math.inf))
    with pytest.raises(RequestError, match="rules out every token"):
        Sampler(params, seed=0).choose(LOGITS, [], [])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = LOGITS.copy()
    logits[2] = bad
    with pytest.raises(DeviceError, match="not finite"):
        Sampler(SamplingParams(temperature=1.0), seed=0).choose(logits, [], [])


@given(st.integers(0, 2**64 - 1), st.integers(0, 10_000))
def test_a_draw_depends_on_seed_and_position_alone(seed: int, position: int) -> None:
    params = SamplingParams(temperature=1.0)
    first = Sampler(params, seed).choose(LOGITS, [0] * position, [])
    again = Sampler(params, seed)
    again.choose(LOGITS, [], [])
    assert again.choose(LOGITS, [0] * (position // 2), [0] * (position - position // 2)) == first


def test_sequences_of_one_seed_differ() -> None:
    params = SamplingParams(temperature=1.0)
    flat = np.zeros(1000, np.float32)
    tokens = {Sampler(params, 5, sequence).choose(flat, [], []) for sequence in range(10)}
    assert len(tokens) == 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_k": 1.5}, "top_k is 1.5; it must be a whole number"),
        ({"seed": 0.5}, "seed is 0.5; it must be a whole number"),
        ({"logit_bias": {1.0: 2.0}}, "names token 1.0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": 2.0}, "min_p is 2.0"),
        ({"repeat_penalty": 0.0}, "repeat_penalty is 0.0"),
        ({"presence_penalty": math.inf}, "presence_penalty is inf"),
        ({"frequency_penalty": math.nan}, "frequency_penalty is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"logit_bias": {99: 1.0}}, "names token 99; tokens are 0 to 5"),
        ({"logit_bias": {1: math.nan}}, "of token 1 is nan"),
    ],
)
def test_bad_parameters_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        SamplingParams(**fields).check(6)
