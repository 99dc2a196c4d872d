"""Which tokens may be drawn, and how likely they are, for vocabularies of 150,000.

A token's weight is exp((score - largest score) / temperature), in float64. The exponential function
of a whole vocabulary takes a tenth of a decode step in float64, and so does sorting it. So all
tokens are looked at in float32 at most, which rules nearly all out; weights of the others, and
every decision about them, are float64's.
"""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import Array

_RUN = 128
"""Neighbouring tokens whose maximum is taken, or whose weights are added up, at a time."""
_STEP = 16
"""By how much weights may be smaller with each look for those that reach a nucleus."""
_LEAST_TEMPERATURE = 1e-30
"""For float32; below it, differences of logits that matter are beyond all weights anyway."""
_MOST_TEMPERATURE = float(np.finfo(np.float32).max)
"""For float32; above it, all tokens that are not ruled out are equally likely anyway."""


def weights_of(scores: Array, highest: float, temperature: float) -> Array:
    """Weights of float32 `scores`, float64."""
    with np.errstate(over="ignore"):  # a tiny temperature makes all but the best impossible
        weights: Array = np.exp((scores.astype(np.float64) - highest) / temperature)
    return weights


def largest(scores: Array, count: int) -> Array:
    """Where the `count` largest scores are, the largest first, and the first of equals first."""
    where = np.arange(len(scores)) if count >= len(scores) else _among_largest(scores, count)
    order = np.argsort(-scores[where], kind="stable")[:count]
    return where[order]


def nucleus(scores: Array, temperature: float, share: float) -> Array:
    """Where the fewest largest scores are whose weights reach `share` of all, largest first."""
    highest = float(scores.max())
    rough = _rough_weights(scores, highest, temperature)
    where = _reaching(rough, share)
    weights = weights_of(scores[where], highest, temperature)
    rough[where] = 0
    total = float(weights.sum()) + float(rough.sum(dtype=np.float64))
    order = np.argsort(-scores[where], kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept: Array = where[order[before < share * total]]
    return kept


def at_least(scores: Array, temperature: float, relative: float) -> Array:
    """Where scores are whose weights reach `relative`, more than 0, or miss it by rounding only."""
    highest = float(scores.max())
    rough = _rough_weights(scores, highest, temperature)
    return np.flatnonzero(rough >= relative * (1 - 1e-4))


def draw_from_all(scores: Array, temperature: float, uniform: float) -> int:
    """The token at which the weights of those up to it pass `uniform`, in [0, 1), of their sum.

    Weights are float32's; their sums are float64's.
    """
    rough = _rough_weights(scores, float(scores.max()), temperature)
    starts = np.arange(0, len(rough), _RUN)
    sums = np.cumsum(np.add.reduceat(rough, starts, dtype=np.float64))
    goal = uniform * sums[-1]
    last = np.searchsorted(sums, sums[-1])  # behind it there are no weights
    run = int(min(np.searchsorted(sums, goal, side="right"), last))
    start = run * _RUN
    within = np.cumsum(rough[start : start + _RUN], dtype=np.float64)
    if run:
        goal -= sums[run - 1]
    place = int(np.searchsorted(within, goal, side="right"))
    if place == len(within):  # by rounding: the last that has a weight
        place = int(np.flatnonzero(rough[start : start + _RUN])[-1])
    return start + place


def _among_largest(scores: Array, count: int) -> Array:
    """Where the `count` largest scores are, and a few more, in order of place."""
    whole = len(scores) // _RUN * _RUN
    tops = scores[:whole].reshape(-1, _RUN).max(axis=1)
    if 4 * count <= len(tops):  # so many runs have one that is as large as the least of their tops
        least = np.partition(tops, len(tops) - count)[len(tops) - count]
    else:
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least)


def _reaching(rough: Array, share: float) -> Array:
    """Where the weights are that surely reach `share` of all together: those above some bound."""
    goal = share * (1 + 1e-5) * float(rough.sum())
    bound = 1.0
    while bound > 1e-30:
        bound /= _STEP
        where = np.flatnonzero(rough >= bound)
        if rough[where].sum() >= goal:
            return where
    return np.arange(len(rough))


def _rough_weights(scores: Array, highest: float, temperature: float) -> Array:
    """Weights in float32."""
    bounded = min(max(temperature, _LEAST_TEMPERATURE), _MOST_TEMPERATURE)
    with np.errstate(over="ignore"):
        rough = scores - np.float32(highest)
        rough /= np.float32(bounded)
    np.exp(rough, out=rough)
    return rough
