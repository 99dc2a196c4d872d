"""What attention's kernels are given, and runs of queries that share a KV head."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.attention_softmax import Merger, Softmax
from crossinfer.backends.cpu.kernels.batch import BatchTables, CacheBlocks
from crossinfer.core.records import record
from crossinfer.jit.arithmetic import maximum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32, i32
from crossinfer.jit.value import Value


@record
class QueryRun:
    """Consecutive rows of one sequence, and one KV head."""

    batch: BatchTables
    kv: CacheBlocks
    q: Pointer
    made: Pointer
    """f32 [T, Hq, D]: the values' sums of the part that is gone through."""
    output: Pointer
    softmax: Softmax
    place: Value | int
    """The number in the softmax of a tile's first query."""
    merger: Merger
    sequence: Value
    kv_head: Value
    first_row: Value
    shared: Value
    """Query heads that share the KV head."""
    query_heads: Value
    window: Value
    scale: Value
    head_dim: int
    fetches_ahead: bool
    """Whether the cache is fetched before its turn: values while their keys are multiplied, the
    next group's keys while values are. Few queries wait for memory; many have it in the cache.
    Into the second level, which waits for more lines at once than the first.
    """

    def row(self, query: Value) -> Value:
        return self.first_row + query // self.shared

    def head(self, query: Value) -> Value:
        """The query's number among the heads of all rows."""
        head = self.kv_head * self.shared + query % self.shared
        return self.row(query) * self.query_heads + head

    def half(self, block: Value, which: int) -> Pointer:
        number = self.batch.block(self.sequence, block)
        return self.kv.half(number, which, self.kv_head)


class Attended:
    """The views and constants that the kernels share, and the state of all their queries."""

    def __init__(
        self, k: KernelBuilder, D: int, read: Sequence[Pointer], output: Pointer, tile: int
    ) -> None:
        """`read`: q, cache, query_start, kv_len, block_table. `tile`: queries of the largest."""
        self.head_dim = D
        self._q, cache, starts, lengths, table = read
        self._output = output
        counts = k.constants(*[i32] * 7, f32)
        self.rows, self.query_heads, self.kv_heads, S, B, self._window, self.cut = counts[:7]
        self._scale = counts[7]
        self.batch = BatchTables(starts, lengths, table, S, B)
        self._cache = CacheBlocks(cache, self.kv_heads, D)
        self._merger = Merger(k, tile, D)  # one for all tiles, which take turns

    def tokens_seen(self, sequence: Value, row: Value) -> tuple[Value, Value]:
        """The first token that a row sees, and the one behind the last."""
        end = self.batch.position(sequence, row) + 1
        return maximum(end - self._window, 0), end

    def queries(
        self,
        sequence: Value,
        kv_head: Value,
        first_row: Value,
        shared: Value,
        made: Pointer,
        softmax: Softmax,
        place: Value | int = 0,
        *,
        fetches_ahead: bool = False,
    ) -> QueryRun:
        return QueryRun(
            batch=self.batch,
            kv=self._cache,
            q=self._q,
            made=made,
            output=self._output,
            softmax=softmax,
            place=place,
            merger=self._merger,
            sequence=sequence,
            kv_head=kv_head,
            first_row=first_row,
            shared=shared,
            query_heads=self.query_heads,
            window=self._window,
            scale=self._scale,
            head_dim=self.head_dim,
            fetches_ahead=fetches_ahead,
        )
