"""The tables of a ragged batch, as generated code reads them (see `graph.batch`)."""

from __future__ import annotations

from crossinfer.core.records import record
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import i64
from crossinfer.jit.value import Value


@record
class BatchTables:
    """query_start i32 [S + 1], kv_len i32 [S], block_table i32 [S, B]."""

    query_start: Pointer
    kv_len: Pointer
    block_table: Pointer
    sequences: Value
    """S"""
    table_blocks: Value
    """B"""

    def sequence_of(self, k: KernelBuilder, row: Value) -> Value:
        """The sequence of a row; S for padding. By bisection: the last that starts at or before."""
        low, high = k.variable(i64, 0), k.variable(i64, self.sequences)
        with k.while_() as loop:
            loop.check(low.value < high.value)
            middle = (low.value + high.value) >> 1
            ends_before = self.end(middle) <= row
            low.set(ends_before.select(middle + 1, low.value))
            high.set(ends_before.select(high.value, middle))
        return low.value

    def end(self, sequence: Value) -> Value:
        """The row behind the sequence's last."""
        return self.query_start[sequence + 1].to(i64)

    def position(self, sequence: Value, row: Value) -> Value:
        """The position in its sequence of a row."""
        return self.kv_len[sequence].to(i64) - self.end(sequence) + row

    def block(self, sequence: Value, number: Value) -> Value:
        """The cache block that holds the sequence's tokens from 16 · `number` on."""
        return self.block_table[sequence * self.table_blocks + number].to(i64)


@record
class CacheBlocks:
    """The KV cache: blocks of [K, V][Hkv] halves of 16 · D elements.

    A half of V is [slot][D], as the canonical order has it. A half of K is turned to [D][slot], so
    that a vector of 16 lanes is one element of 16 keys, and scores need no sums across lanes.
    """

    cache: Pointer
    heads: Value
    """Hkv"""
    head_dim: int

    def half(self, block: Value, which: int, head: Value) -> Pointer:
        """The K (`which` = 0) or V (1) half of a block for a KV head."""
        number = (block * 2 + which) * self.heads + head
        return self.cache + number * (BLOCK_TOKENS * self.head_dim)


def widths(count: int, largest: int = 16) -> list[tuple[int, int]]:
    """`count` elements as (start, width) of vectors whose widths are powers of two."""
    pieces, start, width = [], 0, largest
    while start < count:
        if start + width <= count:
            pieces.append((start, width))
            start += width
        else:
            width //= 2
    return pieces
