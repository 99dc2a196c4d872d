"""The table of cases over `graph.ops.OPS`: what every device must compute.

Sizes are small and odd, or just around the multiples that kernels like, so that every tail runs.
"""

from __future__ import annotations

import functools

from crossinfer.verify.case import Case
from crossinfer.verify.cases_attention import attention_cases
from crossinfer.verify.cases_linear import (
    embed_cases,
    gated_linear_cases,
    linear_cases,
    qkv_linear_cases,
)
from crossinfer.verify.cases_rope import rope_attention_cases, rope_kv_cases
from crossinfer.verify.cases_rows import argmax_cases, rms_norm_cases, swiglu_cases, top_k_cases

_MAKERS = {
    "embed": embed_cases,
    "rms_norm": rms_norm_cases,
    "linear": linear_cases,
    "gated_linear": gated_linear_cases,
    "qkv_linear": qkv_linear_cases,
    "rope_kv": rope_kv_cases,
    "attention": attention_cases,
    "rope_attention": rope_attention_cases,
    "swiglu": swiglu_cases,
    "argmax": argmax_cases,
    "top_k": top_k_cases,
}


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Every case, op by op."""
    return tuple(case for make in _MAKERS.values() for case in make())


def cases_of(*variants: str) -> tuple[Case, ...]:
    """The cases of ops (`linear`) or of their storage variants (`linear[q4_1]`)."""
    return tuple(c for c in all_cases() if c.variant in variants or c.op.name in variants)
