"""attention: causal grouped-query attention over the paged KV cache, with a running softmax.

For a query at position p, with the keys and values at the positions j ≤ p (and j > p - window):

    output = Σ_j softmax_j(q · k_j · scale) · v_j

The queries (rows times the heads that share a KV head) of one sequence are taken in tiles, so that
each key and value is read once for several of them. Two ways, which give the same bits:

attention: a tile goes through all its tokens.
  Views: q f32 [T, Hq, D], cache (layout of `CacheBlocks`) and the batch tables (read); made f32
  [T, Hq, D] (scratch); output f32 [T, Hq, D] (written). Constants: T, Hq, Hkv, S, B, window, rows a
  workgroup, scale. Dispatch: workgroup = KV head + Hkv · (number of a run of rows).

attention_part, then attention_merge, for few rows and long tables: the parts of the tokens are
divided evenly among some workgroups, so that any number of workers has work.
  Views: as above, with made f32 [parts, T, Hq, D], and stats f32 [parts, T, Hq, 2] before the
  output. Constants: as above, but shares instead of rows a workgroup.
  Dispatch: workgroup = share + shares · (KV head + Hkv · row).
  Merge: views q_start, kv_len, made, stats (read), output (written); constants T, Hq, Hkv, S, D,
  window. Workgroup = KV head + Hkv · row. Rows with one part are complete already.

**Same result whatever the batch.** A query sees the tokens in groups of 64 that start at multiples
of 64: scores first, then one step of the running softmax (Milakov and Gimelshein 2018), then the
values in order of their tokens. A group in which it sees no token changes nothing, as does a token
with weight 0, so that it doesn't matter what its neighbours in the tile see. (Unless what they see
is infinite: 0 · ∞ is NaN. Only a sequence that overflowed its cache holds such a value.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crossinfer.backends.cpu.kernels.attention_sizes import PART_TOKENS, even_tile, largest_tile
from crossinfer.backends.cpu.kernels.attention_softmax import Merger, Softmax
from crossinfer.backends.cpu.kernels.attention_tile import QueryRun, Tile
from crossinfer.backends.cpu.kernels.batch import BatchTables, CacheBlocks
from crossinfer.jit.arithmetic import maximum, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f32, i32, i64
from crossinfer.jit.value import Value


def build_attention(target: Target, symbol: str, stored: Type, D: int) -> str:
    k = KernelBuilder(symbol, target)
    q, cache, starts, lengths, table, made, output = k.views(f32, stored, i32, i32, i32, f32, f32)
    sizes = _tiles_down_from(largest_tile(target))
    runs = _Runs(k, D, (q, cache, starts, lengths, table), output, sizes)
    with k.workgroups() as group:
        kv_head = group % runs.kv_heads
        row = k.variable(i64, group // runs.kv_heads * runs.cut)
        last = minimum(row.value + runs.cut, runs.rows)
        with k.while_() as loop:
            loop.check(row.value < last)
            first = row.value
            sequence = runs.batch.sequence_of(k, first)
            loop.check(sequence < runs.batch.sequences)  # only padding is left
            end = minimum(runs.batch.end(sequence), last)
            runs.go(made, sequence, kv_head, first, end, Tile.attend)
            row.set(end)
    return k.finish()


def build_attention_part(target: Target, symbol: str, stored: Type, D: int, shared: int) -> str:
    """`shared` is Hq / Hkv: tiles are cut such that no query is computed twice."""
    k = KernelBuilder(symbol, target)
    q, cache, starts, lengths, table, made, stats, output = k.views(
        f32, stored, i32, i32, i32, f32, f32, f32
    )
    sizes = (even_tile(shared, target),)
    runs = _Runs(k, D, (q, cache, starts, lengths, table), output, sizes, fetches_ahead=True)
    with k.workgroups() as group:
        share, head_of_row = group % runs.cut, group // runs.cut
        kv_head, row = head_of_row % runs.kv_heads, head_of_row // runs.kv_heads
        sequence = runs.batch.sequence_of(k, row)
        with k.if_(sequence < runs.batch.sequences):
            first, parts = runs.parts_of(sequence, row)
            before, after = (first + parts * (share + n) // runs.cut for n in (0, 1))
            with k.range(before, after) as part:
                heads_before = part * runs.rows * runs.query_heads

                def attend(tile: Tile) -> None:
                    tile.go_through(part)
                    with k.if_else(parts == 1) as (then, otherwise):
                        with then:
                            tile.finish_only_part()
                        with otherwise:
                            tile.keep(stats + heads_before * 2)

                runs.go(made + heads_before * D, sequence, kv_head, row, row + 1, attend)
    return k.finish()


def build_attention_merge(target: Target, symbol: str, D: int) -> str:
    k = KernelBuilder(symbol, target)
    starts, lengths, made, stats, output = k.views(i32, i32, f32, f32, f32)
    rows, query_heads, kv_heads, S, window = k.constants(*[i32] * 5)
    batch = BatchTables(starts, lengths, starts, S, k.index(0))  # there is no block table
    shared = query_heads // kv_heads
    merger, only = Merger(k, 1, D), k.index(0)
    with k.workgroups() as group:
        row, kv_head = group // kv_heads, group % kv_heads
        sequence = batch.sequence_of(k, row)
        with k.if_(sequence < S):
            last = batch.position(sequence, row)
            first = maximum(last + 1 - window, 0) // PART_TOKENS
            end = last // PART_TOKENS + 1
            with k.if_(end - first > 1), k.range(0, shared) as number:
                head = row * query_heads + kv_head * shared + number
                goal = output + head * D
                merger.start(only, goal)
                with k.range(first, end) as part:
                    place = part * rows * query_heads + head
                    highest, total = (stats[place * 2 + n] for n in (0, 1))
                    merger.merge(only, highest, total, made + place * D, goal)
                merger.finish(only, goal)
    return k.finish()


class _Runs:
    """What the runs of rows of a kernel share."""

    def __init__(
        self,
        k: KernelBuilder,
        D: int,
        read: Sequence[Pointer],
        output: Pointer,
        sizes: Sequence[int],
        *,
        fetches_ahead: bool = False,
    ) -> None:
        """`read`: q, cache, query_start, kv_len, block_table. `sizes` of tiles, largest first."""
        self._k = k
        self._fetches_ahead = fetches_ahead
        self._head_dim = D
        self._q, cache, starts, lengths, table = read
        self._output = output
        counts = k.constants(*[i32] * 7, f32)
        self.rows, self.query_heads, self.kv_heads, S, B, self._window, self.cut = counts[:7]
        self._scale = counts[7]
        self.batch = BatchTables(starts, lengths, table, S, B)
        self._cache = CacheBlocks(cache, self.kv_heads, D)
        self._sizes = sizes
        # For all tiles: they take turns.
        self._softmax = Softmax(k, sizes[0])
        self._merger = Merger(k, sizes[0], D)

    def parts_of(self, sequence: Value, row: Value) -> tuple[Value, Value]:
        """The first part in which a row sees a token, and the number of them."""
        end = self.batch.position(sequence, row) + 1
        first = maximum(end - self._window, 0) // PART_TOKENS
        return first, (end + PART_TOKENS - 1) // PART_TOKENS - first

    def go(
        self,
        made: Pointer,
        sequence: Value,
        kv_head: Value,
        first: Value,
        end: Value,
        attend: Callable[[Tile], None],
    ) -> None:
        """`attend` to the queries of the rows `first … end - 1` of a sequence, tile by tile."""
        shared = self.query_heads // self.kv_heads
        run = QueryRun(
            batch=self.batch,
            kv=self._cache,
            q=self._q,
            made=made,
            output=self._output,
            softmax=self._softmax,
            merger=self._merger,
            sequence=sequence,
            kv_head=kv_head,
            first_row=first,
            shared=shared,
            query_heads=self.query_heads,
            window=self._window,
            scale=self._scale,
            head_dim=self._head_dim,
            fetches_ahead=self._fetches_ahead,
        )
        queries = (end - first) * shared
        start = self._k.variable(i64, 0)
        with self._k.while_() as loop:
            loop.check(start.value < queries)
            _choose_tile(self._k, run, start.value, queries, self._sizes, attend)
            start += self._sizes[0]


def _tiles_down_from(size: int) -> tuple[int, ...]:
    return tuple(size >> n for n in range(size.bit_length()))


def _choose_tile(
    k: KernelBuilder,
    run: QueryRun,
    start: Value,
    queries: Value,
    sizes: Sequence[int],
    attend: Callable[[Tile], None],
) -> None:
    """A tile of the first size, or of a later one if that holds all that is left."""
    size, *smaller = sizes
    if not smaller:
        attend(Tile(k, run, start, queries, size))
        return
    with k.if_else(queries - start > smaller[0]) as (then, otherwise):
        with then:
            attend(Tile(k, run, start, queries, size))
        with otherwise:
            _choose_tile(k, run, start, queries, smaller, attend)
