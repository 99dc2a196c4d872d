"""The tables of a ragged batch, as the ops that look into the KV cache read them.

A step has T rows (tokens) of S sequences. The rows of sequence s are
`query_start[s] … query_start[s + 1] - 1`; with them its KV cache holds `kv_len[s]` tokens, so they
are its last ones. Token j of sequence s lies in slot j % 16 of block `block_table[s, j // 16]`.
Rows from `query_start[S]` on are padding: they write to block 0, which nobody reads, and what they
compute is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crossinfer.core.dtypes import Array
from crossinfer.core.shapes import ceil_div

BLOCK_TOKENS = 16
PADDING_BLOCK = 0


class SequenceRows(NamedTuple):
    """The rows of one sequence in a step."""

    rows: slice
    first_position: int
    """The position of its first row in the sequence."""
    kv_len: int
    blocks: Array
    """The blocks that hold its kv_len tokens, in order."""


def sequences(query_start: Array, kv_len: Array, block_table: Array) -> Iterator[SequenceRows]:
    """The sequences of a step that have rows."""
    for s, length in enumerate(kv_len.tolist()):
        start, end = int(query_start[s]), int(query_start[s + 1])
        if start < end:
            blocks = block_table[s, : ceil_div(length, BLOCK_TOKENS)]
            yield SequenceRows(slice(start, end), length - (end - start), length, blocks)
