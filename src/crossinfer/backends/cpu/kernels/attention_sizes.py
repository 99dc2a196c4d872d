"""How attention is cut: what its kernels and their dispatches must agree on."""

from __future__ import annotations

from crossinfer.core.shapes import ceil_div
from crossinfer.jit.target import Target

NO_WINDOW = 2**30
"""The window of attention without one: longer than any sequence."""
PART_TOKENS = 256
"""Tokens that a running softmax goes through before its result is merged into the whole."""


def largest_tile(target: Target) -> int:
    """Queries whose accumulators, 16 lanes each, fit into half of the registers; at most 8."""
    registers = 32 if target.vector_bits == 512 or not target.is_x86 else 16
    return min(8, registers * target.vector_bits // (32 * 16) // 2)


def even_tile(queries: int, target: Target) -> int:
    """The size of tiles of which the fewest hold so many queries, cut as evenly as possible."""
    return ceil_div(queries, ceil_div(queries, largest_tile(target)))
