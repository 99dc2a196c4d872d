"""Texts whose every token is scored: their logits, and how likely the model finds each token."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import CrossinferError
from crossinfer.core.progress import Progress
from crossinfer.engine.engine import Engine
from crossinfer.engine.sampling import non_finite_logits
from crossinfer.engine.sequence import ScoreSequence
from crossinfer.engine.stream import next_outcome


def logits_in_chunks(
    engine: Engine, tokens: Sequence[int], progress: Progress
) -> Generator[Array, None, None]:
    """The logits that follow each of `tokens`, in order: float32 [rows, V] as they come.

    Few are computed before they are taken. Whoever ends early closes this, which cancels the rest:
    a text that waits for its caller keeps its part of the KV cache. Raises RequestError,
    DeviceError.
    """
    sequence = ScoreSequence(tokens, progress)
    engine.submit(sequence)
    rows = 0
    try:
        while rows < len(tokens):
            outcome = next_outcome(engine, sequence)
            if isinstance(outcome, CrossinferError):
                raise outcome
            assert isinstance(outcome, np.ndarray)
            engine.resume()
            rows += len(outcome)
            yield outcome
    finally:
        engine.cancel(sequence)


def gather_logits(chunks: Iterable[Array], rows: int, vocabulary: int) -> Array:
    """All chunks as one float32 [rows, vocabulary]."""
    result = np.empty((rows, vocabulary), dtype=np.float32)
    row = 0
    for logits in chunks:
        result[row : row + len(logits)] = logits
        row += len(logits)
    return result


def losses_of(tokens: Sequence[int], chunks: Iterable[Array]) -> Array:
    """-ln p of each token after the first, from the logits of all: float64 [T - 1].

    Raises DeviceError if logits are not finite.
    """
    losses, row = [], 0
    for logits in chunks:
        if not np.all(np.isfinite(logits)):
            raise non_finite_logits()
        following = np.asarray(tokens[row + 1 : row + 1 + len(logits)], dtype=np.int64)
        row += len(logits)
        scores = logits[: len(following)].astype(np.float64)
        top = scores.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
        losses.append(total - scores[np.arange(len(following)), following])
    return np.concatenate(losses)


def perplexity_of(losses: Iterable[Array]) -> float:
    """exp of the mean of all losses; there is at least one."""
    total, count = 0.0, 0
    for window in losses:
        total, count = total + float(window.sum()), count + len(window)
    try:
        return math.exp(total / count)
    except OverflowError:
        return math.inf
