"""attention: causal grouped-query attention over the paged KV cache, with a running softmax.

For a query at position p, with the keys and values at the positions j ≤ p (and j > p - window):

    output = Σ_j softmax_j(q · k_j · scale) · v_j

Views: q f32 [T, Hq, D], cache (layout of `CacheBlocks`) and the batch tables (read); output f32
[T, Hq, D] (written). Constants: T, Hq, Hkv, S, B, window, rows a workgroup, scale.
Dispatch: workgroup = KV head + Hkv · (number of a run of rows). Its queries (rows times the heads
that share the KV head) of one sequence are taken in tiles, so that each key and value is read once
for several of them.

**Same result whatever the batch.** A query sees the tokens in groups of 64 that start at multiples
of 64: scores first, then one step of the running softmax (Milakov and Gimelshein 2018), then the
values in order of their tokens. A group in which it sees no token changes nothing, as does a token
with weight 0, so that it doesn't matter what its neighbours in the tile see. (Unless what they see
is infinite: 0 · ∞ is NaN. Only a sequence that overflowed its cache holds such a value.)
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.attention_tile import QueryRun, Softmax, Tile
from crossinfer.backends.cpu.kernels.batch import BatchTables, CacheBlocks
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f32, i32, i64
from crossinfer.jit.value import Value

NO_WINDOW = 2**30
"""The window of attention without one: longer than any sequence."""


def build_attention(target: Target, symbol: str, stored: Type, D: int) -> str:
    k = KernelBuilder(symbol, target)
    q, cache, starts, lengths, table, output = k.views(f32, stored, i32, i32, i32, f32)
    rows, query_heads, kv_heads, S, B, window, step, scale = k.constants(*[i32] * 7, f32)
    batch = BatchTables(starts, lengths, table, S, B)
    shared = query_heads // kv_heads
    largest = _largest_tile(target)
    softmax = Softmax(k, largest)  # for all tiles: they take turns

    with k.workgroups() as group:
        kv_head = group % kv_heads
        row = k.variable(i64, group // kv_heads * step)
        last = minimum(row.value + step, rows)
        with k.while_() as loop:
            loop.check(row.value < last)
            first = row.value
            sequence = batch.sequence_of(k, first)
            loop.check(sequence < S)  # only padding is left
            end = minimum(batch.end(sequence), last)
            run = QueryRun(
                batch=batch,
                kv=CacheBlocks(cache, kv_heads, D),
                q=q,
                output=output,
                softmax=softmax,
                sequence=sequence,
                kv_head=kv_head,
                first_row=first,
                shared=shared,
                query_heads=query_heads,
                window=window,
                scale=scale,
                head_dim=D,
            )
            _attend_run(k, run, (end - first) * shared, largest)
            row.set(end)
    return k.finish()


def _largest_tile(target: Target) -> int:
    """Queries whose accumulators, 16 lanes each, fit into half of the registers; at most 8."""
    registers = 32 if target.vector_bits == 512 or not target.is_x86 else 16
    return min(8, registers * target.vector_bits // (32 * 16) // 2)


def _attend_run(k: KernelBuilder, run: QueryRun, queries: Value, largest: int) -> None:
    """All queries of a run, in tiles; what is left in the end takes a smaller one."""
    start = k.variable(i64, 0)
    with k.while_() as loop:
        loop.check(start.value < queries)
        _choose_tile(k, run, start.value, queries, largest)
        start += largest


def _choose_tile(k: KernelBuilder, run: QueryRun, start: Value, queries: Value, size: int) -> None:
    """The tile of `size`, or a smaller one if half of that holds all that is left."""
    if size == 1:
        Tile(k, run, start, queries, size).attend()
        return
    with k.if_else(queries - start > size // 2) as (then, otherwise):
        with then:
            Tile(k, run, start, queries, size).attend()
        with otherwise:
            _choose_tile(k, run, start, queries, size // 2)
