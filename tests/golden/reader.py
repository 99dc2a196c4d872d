"""Reads the goldens of make_real_logits, and compares logits with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array

FOLDER = Path(__file__).parent
PROMPTS = 8
GREEDY = 2


class RealGolden:
    """One golden file; its keys are described in make_real_logits."""

    def __init__(self, name: str) -> None:
        with np.load(FOLDER / f"{name}.npz") as arrays:
            self._arrays: dict[str, Any] = dict(arrays)

    def __getitem__(self, key: str) -> Array:
        array: Array = self._arrays[key]
        return array

    def divergence(self, prompt: int, logits: Array) -> Array:
        """KL(golden || logits) of the kept rows of a prompt, from float32 [T, V] of all its rows.

        Over the likeliest tokens one by one and the buckets of the others, in nats.
        """
        rows = self[f"prompt{prompt}_rows"]
        ids = self[f"prompt{prompt}_top_ids"]
        scores = logits[rows].astype(np.float64)
        scores -= scores.max(axis=1, keepdims=True)
        probabilities = np.exp(scores)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        tail_log = self[f"prompt{prompt}_log_tail"].astype(np.float64)
        result = np.empty(len(rows))
        for row, top in enumerate(ids):
            expected = self[f"prompt{prompt}_top_logprobs"][row].astype(np.float64)
            kept = np.ones(probabilities.shape[1], bool)
            kept[top] = False
            others = np.flatnonzero(kept)
            tail = np.zeros(tail_log.shape[1])
            np.add.at(tail, others % len(tail), probabilities[row, others])
            of_top = np.exp(expected) * (expected - np.log(probabilities[row, top]))
            used = np.isfinite(tail_log[row])
            of_tail = np.exp(tail_log[row, used]) * (tail_log[row, used] - np.log(tail[used]))
            result[row] = of_top.sum() + of_tail.sum()
        return result
