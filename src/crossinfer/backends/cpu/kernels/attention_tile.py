"""The inner part of attention: some queries of one sequence and one KV head go through its tokens.

For queries i and groups of 64 tokens j, with a running maximum m and sum l of each query:

    s[i, j] = q[i] · k[j] · scale                 -∞ where i doesn't see j
    m' = max(m, max_j s)      factor = exp(m - m')      w[i, j] = exp(s[i, j] - m')
    l = l · factor + Σ_j w[i, j]
    output[i] = output[i] · factor + Σ_j w[i, j] · v[j]

and output[i] / l in the end. The products have one shape: vectors of 16 keys (or of 16 elements of
a value) from the cache, times scalars from memory, added to one accumulator a query.
"""

from __future__ import annotations

import dataclasses
import math

from crossinfer.backends.cpu.kernels.batch import BatchTables, CacheBlocks, widths
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import exp, fma, maximum, minimum, reduce_add, reduce_max
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32, i32
from crossinfer.jit.value import Value

GROUP_TOKENS = 64
_NO_MAXIMUM = -1e30
"""Below every score, yet finite: a difference with -∞ is not NaN."""


class Softmax:
    """The running softmax of the queries of a tile, in memory: a step is a loop over queries."""

    def __init__(self, k: KernelBuilder, queries: int) -> None:
        self._k = k
        self._maxima = k.scratch(f32, queries)
        self._sums = k.scratch(f32, queries * BLOCK_TOKENS)
        self.weights = k.scratch(f32, queries * GROUP_TOKENS)
        """[query][token]: scores before a step, weights after it."""
        self.factors = k.scratch(f32, queries)
        """What the last step made of sums so far, by query."""

    def start(self, queries: int) -> None:
        for query in range(queries):
            self._maxima[query] = _NO_MAXIMUM
            self._sums.store(query * BLOCK_TOKENS, self._k.constant(f32.x(BLOCK_TOKENS), 0.0))

    def step(self, queries: int) -> None:
        """Turn the scores of a group into weights."""
        with self._k.range(0, queries) as query:
            weights = self.weights + query * GROUP_TOKENS
            places = range(0, GROUP_TOKENS, BLOCK_TOKENS)
            scores = [weights.vector(place, BLOCK_TOKENS) for place in places]
            largest = reduce_max(maximum(maximum(*scores[:2]), maximum(*scores[2:])))
            before = self._maxima[query]
            new = maximum(largest, before)
            factor = exp(before - new)
            made = [exp(score - new) for score in scores]
            for place, weight in zip(places, made, strict=True):
                weights.store(place, weight)
            old = self._sums.vector(query * BLOCK_TOKENS, BLOCK_TOKENS)
            total = old * factor + ((made[0] + made[1]) + (made[2] + made[3]))
            self._sums.store(query * BLOCK_TOKENS, total)
            self._maxima[query] = new
            self.factors[query] = factor

    def sums(self, queries: int) -> list[Value]:
        """The sum of each query's weights."""
        return [
            reduce_add(self._sums.vector(query * BLOCK_TOKENS, BLOCK_TOKENS))
            for query in range(queries)
        ]


@dataclasses.dataclass(frozen=True)
class QueryRun:
    """Consecutive rows of one sequence, and one KV head."""

    batch: BatchTables
    kv: CacheBlocks
    q: Pointer
    output: Pointer
    softmax: Softmax
    sequence: Value
    kv_head: Value
    first_row: Value
    shared: Value
    """Query heads that share the KV head."""
    query_heads: Value
    window: Value
    scale: Value
    head_dim: int

    def row(self, query: Value) -> Value:
        return self.first_row + query // self.shared

    def head_offset(self, query: Value) -> Value:
        """Where the query's head starts in q and in the output."""
        head = self.kv_head * self.shared + query % self.shared
        return (self.row(query) * self.query_heads + head) * self.head_dim

    def half(self, block: Value, which: int) -> Pointer:
        number = self.batch.block(self.sequence, block)
        return self.kv.half(number, which, self.kv_head)


class Tile:
    """`size` queries that go through the tokens together.

    If there are fewer, the last one is computed several times over: its copies read before any of
    them writes, so they all write the same.
    """

    def __init__(
        self, k: KernelBuilder, run: QueryRun, start: Value, queries: Value, size: int
    ) -> None:
        self.k, self.run, self.size = k, run, size
        numbers = [minimum(start + i, queries - 1) for i in range(size)]
        self.q = [run.q + run.head_offset(n) for n in numbers]
        self.output = [run.output + run.head_offset(n) for n in numbers]
        positions = [run.batch.position(run.sequence, run.row(n)) for n in numbers]
        self.ends = [p + 1 for p in positions]
        self.starts = [maximum(end - run.window, 0) for end in self.ends]
        # Rows ascend, so the first query has the lowest bounds and the last the highest.
        self.start, self.end = self.starts[0], self.ends[-1]
        # Short tiles take several vectors at once instead, to hide the latency of sums.
        self.vectors = max(1, 4 // size)

    def attend(self) -> None:
        k, D = self.k, self.run.head_dim
        for output in self.output:
            for start, width in widths(D):
                output.store(start, k.constant(f32.x(width), 0.0))
        softmax = self.run.softmax
        softmax.start(self.size)
        with k.range(
            self.start // GROUP_TOKENS, (self.end + GROUP_TOKENS - 1) // GROUP_TOKENS
        ) as g:
            base = g * GROUP_TOKENS
            low, high = maximum(self.start, base), minimum(self.end, base + GROUP_TOKENS)
            self._scores(base, low, high)
            softmax.step(self.size)
            self._values(base, low, high)
        self._divide(softmax.sums(self.size))

    def _scores(self, base: Value, low: Value, high: Value) -> None:
        """weights[i][j] = q_i · k_j · scale; -∞ where query i doesn't see token j."""
        k, lanes = self.k, BLOCK_TOKENS
        hidden = k.constant(f32.x(lanes), -math.inf)
        for place in range(0, self.size * GROUP_TOKENS, lanes):
            self.run.softmax.weights.store(place, hidden)
        last = (high - 1) // lanes
        with k.range(low // lanes, last + 1, self.vectors) as block:
            # What lies behind the last block is read from it, and hidden.
            keys = [self.run.half(minimum(block + v, last), 0) for v in range(self.vectors)]
            sums = [[k.variable(f32.x(lanes), 0.0) for _ in keys] for _ in self.q]
            with k.range(0, self.run.head_dim) as d:
                for v, key in enumerate(keys):
                    elements = key.vector(d * lanes, lanes).to(f32)
                    for query, mine in zip(self.q, sums, strict=True):
                        mine[v].set(fma(query[d].splat(lanes), elements, mine[v].value))
            for v in range(self.vectors):
                tokens = (block + v) * lanes
                with k.if_(tokens < base + GROUP_TOKENS):
                    for i, mine in enumerate(sums):
                        score = self._hide(i, tokens, mine[v].value * self.run.scale)
                        self.run.softmax.weights.store(tokens - base + i * GROUP_TOKENS, score)

    def _hide(self, query: int, tokens: Value, scores: Value) -> Value:
        """The scores of 16 tokens, -∞ where a query doesn't see them."""
        number = self.k.lane_numbers(BLOCK_TOKENS)
        seen = number < (self.ends[query] - tokens).to(i32)
        seen = seen & (number >= (self.starts[query] - tokens).to(i32))
        return seen.select(scores, -math.inf)

    def _values(self, base: Value, low: Value, high: Value) -> None:
        """output_i = output_i · factor_i + Σ_j weights[i][j] · v_j."""
        k, run = self.k, self.run

        lanes = 16
        step = lanes * self.vectors
        whole = run.head_dim // step * step
        with k.range(0, whole, step) as start:
            self._value_columns(base, low, high, start, [lanes] * self.vectors)
        rest = [width for _, width in widths(run.head_dim - whole)]
        if rest:
            self._value_columns(base, low, high, k.index(whole), rest)

    def _value_columns(
        self,
        base: Value,
        low: Value,
        high: Value,
        start: Value,
        columns: list[int],
    ) -> None:
        """The columns from `start` on, in vectors of these widths."""
        k, run = self.k, self.run
        offsets = [start + sum(columns[:c]) for c in range(len(columns))]
        sums = [
            [
                k.variable(f32.x(width), output.vector(at, width) * run.softmax.factors[i])
                for at, width in zip(offsets, columns, strict=True)
            ]
            for i, output in enumerate(self.output)
        ]
        with k.range(low // BLOCK_TOKENS, (high - 1) // BLOCK_TOKENS + 1) as block:
            values = run.half(block, 1)
            tokens = block * BLOCK_TOKENS
            first, last = maximum(low, tokens), minimum(high, tokens + BLOCK_TOKENS)
            with k.range(first - tokens, last - tokens) as slot:
                vectors = [
                    values.vector(slot * run.head_dim + at, width).to(f32)
                    for at, width in zip(offsets, columns, strict=True)
                ]
                place = tokens - base + slot
                for i, mine in enumerate(sums):
                    weight = run.softmax.weights[place + i * GROUP_TOKENS]
                    for total, vector in zip(mine, vectors, strict=True):
                        total.set(fma(weight.splat(vector.type.lanes), vector, total.value))
        for output, mine in zip(self.output, sums, strict=True):
            for at, total in zip(offsets, mine, strict=True):
                output.store(at, total.value)

    def _divide(self, sums: list[Value]) -> None:
        """The outputs are complete: divide them by the sums of their weights.

        Adding zero makes +0 of -0: whether a product with weight 0 was added must not show.
        """
        for start, width in widths(self.run.head_dim):
            results = [
                output.vector(start, width) / total + 0.0
                for output, total in zip(self.output, sums, strict=True)
            ]
            for output, result in zip(self.output, results, strict=True):
                output.store(start, result)
