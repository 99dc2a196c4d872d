"""attention: causal grouped-query attention over the paged KV cache, with a running softmax.

For a query at position p, with the keys and values at the positions j ≤ p (and j > p - window):

    output = Σ_j softmax_j(q · k_j · scale) · v_j

The queries (rows times the heads that share a KV head) of one sequence are taken in tiles, so that
each key and value is read once for several of them. Two ways, which give the same bits:

attention: a tile goes through all its tokens.
  Views: q f32 [T, Hq, D], cache (layout of `CacheBlocks`) and the batch tables (read); made f32
  [T, Hq, D] (scratch); output f32 [T, Hq, D] (written). Constants: T, Hq, Hkv, S, B, window, rows a
  workgroup, scale. Dispatch: workgroup = KV head + Hkv · (number of a run of rows).

attention_part, then attention_merge: `attention_part`, for few rows and long tables.

**Same result whatever the batch.** A query sees the tokens in groups of 64 that start at multiples
of 64: scores first, then one step of the running softmax (Milakov and Gimelshein 2018), then the
values in order of their tokens. A group in which it sees no token changes nothing, as does a token
with weight 0, so that it doesn't matter what its neighbours in the tile see. (Unless what they see
is infinite: 0 · ∞ is NaN. Only a sequence that overflowed its cache holds such a value.)
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.attention_queries import Attended, QueryRun
from crossinfer.backends.cpu.kernels.attention_sizes import STATE_FLOATS, largest_tile
from crossinfer.backends.cpu.kernels.attention_softmax import Softmax
from crossinfer.backends.cpu.kernels.attention_tile import Tile
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f32, i32, i64
from crossinfer.jit.value import Value


def build_attention(target: Target, symbol: str, stored: Type, D: int) -> str:
    k = KernelBuilder(symbol, target)
    q, cache, starts, lengths, table, made, output = k.views(f32, stored, i32, i32, i32, f32, f32)
    sizes = _tiles_down_from(largest_tile(target))
    attended = Attended(k, D, (q, cache, starts, lengths, table), output, sizes[0])
    softmax = Softmax(k, sizes[0], k.scratch(f32, sizes[0] * STATE_FLOATS))
    shared = attended.query_heads // attended.kv_heads
    with k.workgroups() as group:
        kv_head = group % attended.kv_heads
        row = k.variable(i64, group // attended.kv_heads * attended.cut)
        last = minimum(row.value + attended.cut, attended.rows)
        with k.while_() as loop:
            loop.check(row.value < last)
            first = row.value
            sequence = attended.batch.sequence_of(k, first)
            loop.check(sequence < attended.batch.sequences)  # only padding is left
            end = minimum(attended.batch.end(sequence), last)
            run = attended.queries(sequence, kv_head, first, shared, made, softmax)
            queries = (end - first) * shared
            with k.range(0, queries, sizes[0]) as start:
                _attend(k, run, start, queries, sizes)
            row.set(end)
    return k.finish()


def _tiles_down_from(size: int) -> tuple[int, ...]:
    return tuple(size >> n for n in range(size.bit_length()))


def _attend(
    k: KernelBuilder, run: QueryRun, start: Value, queries: Value, sizes: Sequence[int]
) -> None:
    """A tile of the first size, or of a later one if that holds all that is left."""
    size, *smaller = sizes
    if not smaller:
        Tile(k, run, start, queries, size).attend()
        return
    with k.if_else(queries - start > smaller[0]) as (then, otherwise):
        with then:
            Tile(k, run, start, queries, size).attend()
        with otherwise:
            _attend(k, run, start, queries, smaller)
