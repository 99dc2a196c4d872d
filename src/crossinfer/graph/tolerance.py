"""How far a kernel's result may be from the float64 meaning: by class, not by test."""

from __future__ import annotations

import enum

import numpy as np

from crossinfer.core.dtypes import Array


class Tolerance(enum.Enum):
    """The largest allowed `row_error`."""

    EXACT = 0.0
    """Copies, indices."""
    F32 = 1e-5
    """float32 arithmetic in any order of summation."""
    HALF = 2e-3
    """Results that are stored as float16 or bfloat16."""


def row_error(result: Array, expected: Array) -> float:
    """The largest max|a - b| / max|b| over the rows (last dimension) of two arrays.

    Infinity where a row holds a NaN or an infinity that the other hasn't in the same place, so that
    garbage never passes. Raises ValueError if the shapes differ.
    """
    if result.shape != expected.shape:
        raise ValueError(f"shapes {result.shape} and {expected.shape} cannot be compared")
    with np.errstate(invalid="ignore"):  # garbage may be a signalling NaN
        a = np.atleast_1d(result).astype(np.float64)
        b = np.atleast_1d(expected).astype(np.float64)
    if a.size == 0:
        return 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(np.isfinite(a) & np.isfinite(b) | same):
        return float("inf")
    difference = np.where(same, 0.0, np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b)))
    scale = np.max(np.abs(np.where(np.isfinite(b), b, 0.0)), axis=-1)
    worst = np.max(difference, axis=-1)
    ratio = np.divide(worst, scale, out=np.full_like(worst, np.inf), where=scale > 0)
    return float(np.max(np.where(worst == 0, 0.0, ratio)))
