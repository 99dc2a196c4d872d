"""Sampling parameters, and the choice of a token from logits.

Order, as in transformers: logit bias, repetition, presence and frequency penalties, temperature,
top-k, top-p, min-p, then one draw. Temperature 0 takes the most likely token instead.

Draws come from a counter-based generator (Philox) keyed by seed, sequence and position, so the same
seed gives the same tokens however a prompt was chunked or batched, and after a recovery.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceError, RequestError
from crossinfer.core.records import record
from crossinfer.engine.candidates import (
    at_least,
    draw_from_all,
    largest,
    nucleus,
    weights_of,
)


class SamplingOptions(TypedDict, total=False):
    """The fields of `SamplingParams` as keywords."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None


@record
class SamplingParams:
    """How tokens are chosen. The default is greedy: the same answer each time."""

    temperature: float = 0.0
    """Logits are divided by it; 0 is greedy."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the fewest most likely tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Keep tokens at least this likely, relative to the most likely one."""
    repeat_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt and answer."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens in the answer so far."""
    frequency_penalty: float = 0.0
    """Subtracted from them once for each time that they occur."""
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """Added to the logits of tokens, by id; minus infinity rules a token out."""
    seed: int | None = None
    """None draws a fresh one."""

    def check(self, vocabulary: int) -> None:
        """Raises RequestError for a value that makes no sense."""
        rules = (
            ("temperature", self.temperature, 0 <= self.temperature < math.inf, "at least 0"),
            (
                "top_k",
                self.top_k,
                _is_whole(self.top_k) and self.top_k >= 0,
                "a whole number, at least 0",
            ),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "between 0 and 1"),
            (
                "repeat_penalty",
                self.repeat_penalty,
                0 < self.repeat_penalty < math.inf,
                "above 0",
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                math.isfinite(self.presence_penalty),
                "finite",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty,
                math.isfinite(self.frequency_penalty),
                "finite",
            ),
            (
                "seed",
                self.seed,
                self.seed is None or (_is_whole(self.seed) and 0 <= self.seed < 1 << 64),
                "a whole number from 0 to 2^64 - 1",
            ),
        )
        for name, value, good, rule in rules:
            if not good:
                raise RequestError(f"{name} is {value}; it must be {rule}.")
        for token, bias in self.logit_bias.items():
            if not (_is_whole(token) and 0 <= token < vocabulary):
                raise RequestError(
                    f"logit_bias names token {token}; tokens are 0 to {vocabulary - 1}."
                )
            if math.isnan(bias) or bias == math.inf:
                raise RequestError(f"logit_bias of token {token} is {bias}; it must be a number.")

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return bool(
            self.repeat_penalty != 1
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
        )

    @property
    def draws_from_all(self) -> bool:
        """Whether every token of the vocabulary may be drawn."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0

    @property
    def is_argmax(self) -> bool:
        """Whether the device's argmax is the answer, so that logits need not be downloaded."""
        return self.temperature == 0 and not self.adjusts


class Sampler:
    """Chooses the tokens of one sequence."""

    def __init__(self, params: SamplingParams, seed: int, sequence: int = 0) -> None:
        """`sequence` numbers the sequences of one request, which share its seed."""
        self._params = params
        self._seed = seed
        self._sequence = sequence

    def choose(self, logits: Array, prompt: Sequence[int], answer: Sequence[int]) -> int:
        """The token that follows `prompt` and `answer`, from float32 logits [V].

        Raises DeviceError if the logits are not finite, RequestError if no token may be chosen.
        """
        if not np.all(np.isfinite(logits)):
            raise non_finite_logits()
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            scores = self._adjusted(logits, prompt, answer)
        best = int(np.argmax(scores))
        if scores[best] == -np.inf:
            raise RequestError("logit_bias rules out every token, so none can be chosen.")
        if not np.isfinite(scores[best]):
            raise RequestError(
                "logit_bias and the penalties are so large that a logit overflows; take smaller "
                "ones."
            )
        if self._params.temperature == 0:
            return best
        uniform = self._uniform(len(prompt) + len(answer))
        if self._params.draws_from_all:
            return draw_from_all(scores, self._params.temperature, uniform)
        tokens, weights = self._kept(scores)
        total = np.cumsum(weights)
        place = np.searchsorted(total, uniform * total[-1], side="right")
        return int(tokens[min(place, len(tokens) - 1)])

    def _adjusted(self, logits: Array, prompt: Sequence[int], answer: Sequence[int]) -> Array:
        """Logits with bias and penalties, in float32; those themselves if there are none."""
        params = self._params
        if not params.adjusts:
            return logits
        scores = logits.copy()
        for token, bias in params.logit_bias.items():
            scores[token] = float(scores[token]) + bias
        if params.repeat_penalty != 1:
            seen = np.unique(np.array([*prompt, *answer], dtype=np.int64))
            values = scores[seen].astype(np.float64)
            penalty = params.repeat_penalty
            scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        if params.presence_penalty or params.frequency_penalty:
            for token, count in Counter(answer).items():
                penalty = params.presence_penalty + params.frequency_penalty * count
                scores[token] = float(scores[token]) - penalty
        return scores

    def _kept(self, scores: Array) -> tuple[Array, Array]:
        """The tokens that may be drawn, and their probabilities relative to the likeliest."""
        params, temperature = self._params, self._params.temperature
        if params.top_k:
            tokens = largest(scores, params.top_k)
            if params.top_p < 1:
                tokens = tokens[nucleus(scores[tokens], temperature, params.top_p)]
        elif params.top_p < 1:
            tokens = nucleus(scores, temperature, params.top_p)
        else:
            tokens = at_least(scores, temperature, params.min_p)
        weights = weights_of(scores[tokens], float(scores.max()), temperature)
        keep = (weights > 0) & (weights >= params.min_p)
        return tokens[keep], weights[keep]

    def _uniform(self, position: int) -> float:
        """A number in [0, 1) that depends on seed, sequence and position alone."""
        generator = np.random.Philox(counter=position, key=(self._sequence << 64) | self._seed)
        return float(int(generator.random_raw()) >> 11) * 2.0**-53


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def non_finite_logits() -> DeviceError:
    """The error for logits that hold NaN or infinities."""
    return DeviceError(
        "The model's logits are not finite, so no token can be chosen: the weights hold bad values "
        "or a kernel is wrong. `crossinfer inspect` shows the weights; try another device."
    )
