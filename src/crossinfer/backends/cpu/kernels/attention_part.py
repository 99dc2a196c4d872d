"""attention_part, attention_merge: attention for few rows, divided over the tokens.

attention_part: a row's pieces of work are its parts of the tokens times the KV heads, in this order
and divided evenly among some workgroups, so that any number of workers has work. The heads of a
part that fall to one call go through it side by side: a head's share of a block of the cache is too
short a run of memory to be read fast, and the softmax takes its steps for all of them together.
  Views: q f32 [T, Hq, D], cache and the batch tables as `attention`'s (read); made f32 [parts, T,
  Hq, D], stats f32 [parts, T, Hq, 2] and output f32 [T, Hq, D] (written). Behind stats, from a
  cache line's start on: the softmax's state, f32 [parts, T, Hkv, queries in whole tiles,
  STATE_FLOATS]. Constants: T, Hq, Hkv, S, B, window, shares of a row, scale.
  Dispatch: workgroup = share + shares · row.

attention_merge puts the parts together. Rows with one part are complete already.
  Views: query_start, kv_len, made, stats (read), output (written). Constants: T, Hq, Hkv, S,
  window. Dispatch: workgroup = KV head + Hkv · row.
"""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.backends.cpu.kernels.attention_queries import Attended
from crossinfer.backends.cpu.kernels.attention_sizes import (
    LINE_FLOATS,
    PART_TOKENS,
    STATE_FLOATS,
    even_tile,
    heads_at_once,
    tiled_queries,
)
from crossinfer.backends.cpu.kernels.attention_softmax import Merger, Softmax
from crossinfer.backends.cpu.kernels.attention_tile import Tile, groups_of, parts_of
from crossinfer.backends.cpu.kernels.batch import BatchTables
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import maximum, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f32, i32, i64
from crossinfer.jit.value import Value


def build_attention_part(target: Target, symbol: str, stored: Type, D: int, shared: int) -> str:
    """`shared` is Hq / Hkv: tiles are cut such that no query is computed twice."""
    k = KernelBuilder(symbol, target)
    q, cache, starts, lengths, table, made, stats, output = k.views(
        f32, stored, i32, i32, i32, f32, f32, f32
    )
    size = even_tile(shared, target)
    attended = Attended(k, D, (q, cache, starts, lengths, table), output, size)
    first, end = k.given_workgroups()
    group = k.variable(i64, first)
    with k.while_() as loop:
        loop.check(group.value < end)
        row = group.value // attended.cut
        row_start = row * attended.cut
        share, next_row = group.value - row_start, minimum(row_start + attended.cut, end)
        group.set(next_row)
        sequence = attended.batch.sequence_of(k, row)
        with k.if_(sequence < attended.batch.sequences):
            pieces = Pieces(k, attended, made, stats, sequence, row, shared, size)
            pieces.go_through(share, next_row - row_start)
    return k.finish()


class Pieces:
    """Parts of a row's tokens times KV heads."""

    def __init__(
        self,
        k: KernelBuilder,
        attended: Attended,
        made: Pointer,
        stats: Pointer,
        sequence: Value,
        row: Value,
        shared: int,
        size: int,
    ) -> None:
        self._k, self._attended = k, attended
        self._made, self._stats = made, stats
        self._sequence, self._row = sequence, row
        self._shared, self._size = shared, size
        self._padded = tiled_queries(shared, k.target)
        self._heads_at_once = heads_at_once(shared, k.target)
        self._seen = attended.tokens_seen(sequence, row)
        self._first_part, end_part = parts_of(*self._seen)
        self._parts = end_part - self._first_part
        blocks_of_part = PART_TOKENS // BLOCK_TOKENS
        parts = (attended.batch.table_blocks + blocks_of_part - 1) // blocks_of_part
        pairs = parts * attended.rows * attended.query_heads * 2
        self._states = stats + (pairs + LINE_FLOATS - 1) // LINE_FLOATS * LINE_FLOATS

    def go_through(self, share: Value, end_share: Value) -> None:
        """Shares `share … end_share - 1` of the row's pieces."""
        k, heads = self._k, self._attended.kv_heads
        pieces = self._parts * heads
        end = pieces * end_share // self._attended.cut
        piece = k.variable(i64, pieces * share // self._attended.cut)
        with k.while_() as loop:
            loop.check(piece.value < end)
            part, head = piece.value // heads, piece.value % heads
            count = minimum(minimum(heads - head, end - piece.value), self._heads_at_once)
            piece += count
            self.attend(self._first_part + part, head, head + count)

    def attend(self, part: Value, first_head: Value, end_head: Value) -> None:
        """KV heads `first_head … end_head - 1` of a part."""
        k, attended = self._k, self._attended
        rows_before = part * attended.rows
        heads_before = rows_before * attended.query_heads
        states_before = (rows_before + self._row) * attended.kv_heads + first_head
        softmax = Softmax(
            k,
            self._heads_at_once * self._padded,
            self._states + states_before * (self._padded * STATE_FLOATS),
        )
        queries = (end_head - first_head) * self._padded

        def tiles() -> Iterator[Tile]:
            """The body of a `for` over this is written once for each tile of a head."""
            with k.range(first_head, end_head) as head:
                for start in range(0, self._padded, self._size):
                    run = attended.queries(
                        self._sequence,
                        head,
                        self._row,
                        k.index(self._shared),
                        self._made + heads_before * attended.head_dim,
                        softmax,
                        (head - first_head) * self._padded + start,
                        fetches_ahead=True,
                    )
                    yield Tile(k, run, k.index(start), k.index(self._shared), self._size)

        softmax.start(queries)
        for tile in tiles():
            tile.start_sums()
        with k.range(*groups_of(part, *self._seen)) as group:
            for tile in tiles():
                tile.score(group)
            softmax.step(queries)
            for tile in tiles():
                tile.add_values(group)
        for tile in tiles():
            with k.if_else(self._parts == 1) as (then, otherwise):
                with then:
                    tile.finish_only_part()
                with otherwise:
                    tile.keep(self._stats + heads_before * 2)


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
