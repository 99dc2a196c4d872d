"""How attention is cut: what its kernels and their dispatches must agree on."""

from __future__ import annotations

from crossinfer.core.shapes import ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.target import Target

NO_WINDOW = 2**30
"""The window of attention without one: longer than any sequence."""
GROUP_TOKENS = 64
"""Tokens that a step of the running softmax takes."""
PART_TOKENS = 256
"""Tokens that a running softmax goes through before its result is merged into the whole."""
STATE_FLOATS = GROUP_TOKENS + BLOCK_TOKENS
"""A query's weights of a group, and the lanes of the running sum of its weights."""
LINE_FLOATS = 16
"""A cache line's."""
_QUERIES_AT_ONCE = 16
_HEADS_AT_ONCE = 4
"""Keys of a block that are read in one go, at most; a cache holds a group of them twice."""


def largest_tile(target: Target) -> int:
    """Queries whose accumulators, 16 lanes each, fit into half of the registers; at most 8."""
    registers = 32 if target.vector_bits == 512 or not target.is_x86 else 16
    return min(8, registers * target.vector_bits // (32 * 16) // 2)


def even_tile(queries: int, target: Target) -> int:
    """The size of tiles of which the fewest hold so many queries, cut as evenly as possible."""
    return ceil_div(queries, ceil_div(queries, largest_tile(target)))


def tiled_queries(queries: int, target: Target) -> int:
    """So many queries, and those that are computed twice in the last of such tiles."""
    size = even_tile(queries, target)
    return ceil_div(queries, size) * size


def heads_at_once(queries: int, target: Target) -> int:
    """KV heads, of so many queries each, that go through the tokens together."""
    return max(1, min(_HEADS_AT_ONCE, _QUERIES_AT_ONCE // tiled_queries(queries, target)))
