"""silu, as it stands in the epilogues of several kernels."""

from __future__ import annotations

from crossinfer.jit.arithmetic import absolute, exp
from crossinfer.jit.value import Value


def silu(x: Value) -> Value:
    """x · sigmoid(x) of f32. The exponential's argument is never positive: it cannot overflow."""
    decay = exp(-absolute(x))
    return x * (x >= 0.0).select(x._like(1.0), decay) / (decay + 1.0)
