"""The inner part of attention: some queries of one sequence and one KV head go through its tokens.

For queries i and groups of 64 tokens j, with a running maximum m and sum l of each query:

    s[i, j] = q[i] · k[j] · scale · log2(e)       -∞ where i doesn't see j
    m' = max(m, max_j s)      factor = 2^(m - m')      w[i, j] = 2^(s[i, j] - m')
    l = l · factor + Σ_j w[i, j]
    output[i] = output[i] · factor + Σ_j w[i, j] · v[j]

and output[i] / l in the end. Tokens are gone through in parts of 256, each from a fresh start, and
the parts' results merged, so that parts may as well be computed apart.

The products have one shape: vectors of 16 keys (or of 16 elements of a value) from the cache, times
scalars from memory, added to one accumulator a query.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from crossinfer.backends.cpu.kernels.attention_queries import QueryRun
from crossinfer.backends.cpu.kernels.attention_sizes import (
    GROUP_TOKENS,
    PART_TOKENS,
    STATE_FLOATS,
)
from crossinfer.backends.cpu.kernels.attention_softmax import store_zeros
from crossinfer.backends.cpu.kernels.batch import widths
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import fma, maximum, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32, i1, u16, u32
from crossinfer.jit.value import Value

_LOG2_E = 1.44269504088896341
_FETCH_BYTES = 32
"""Half a cache line, so that each is asked for twice. With once, attention of 14 heads on 2
takes 12 to 17% longer.
"""


def parts_of(first: Value, end: Value) -> tuple[Value, Value]:
    """The first part with one of the tokens `first … end - 1`, and the one behind the last."""
    return first // PART_TOKENS, (end + PART_TOKENS - 1) // PART_TOKENS


def groups_of(part: Value, first: Value, end: Value) -> tuple[Value, Value]:
    """The same for the groups of a part."""
    per_part = PART_TOKENS // GROUP_TOKENS
    first_group, end_group = first // GROUP_TOKENS, (end + GROUP_TOKENS - 1) // GROUP_TOKENS
    return maximum(first_group, part * per_part), minimum(end_group, (part + 1) * per_part)


class Tile:
    """`size` queries that go through the tokens together.

    If there are fewer, the last one is computed several times over: its copies read before any of
    them writes, so they all write the same. What happens query by query leaves copies out.
    """

    def __init__(
        self, k: KernelBuilder, run: QueryRun, start: Value, queries: Value, size: int
    ) -> None:
        self.k, self.run, self.size = k, run, size
        self._first, self._count = start, minimum(queries - start, size)
        numbers = [minimum(start + i, queries - 1) for i in range(size)]
        offsets = [run.head(n) * run.head_dim for n in numbers]
        self.q, self.made = ([base + offset for offset in offsets] for base in (run.q, run.made))
        positions = [run.batch.position(run.sequence, run.row(n)) for n in numbers]
        self.ends = [p + 1 for p in positions]
        # Rows ascend, so the first query has the lowest bounds and the last the highest.
        self.start, self.end = self._start_of(self.ends[0]), self.ends[-1]
        self.scale = run.scale * _LOG2_E
        weights = run.softmax.weights(run.place)
        self.weights = [weights + i * STATE_FLOATS for i in range(size)]
        # Short tiles take several vectors at once instead: sums and memory have latencies to hide.
        accumulators = 12 if k.target.vector_bits == 512 else 4
        self.vectors = max(1, min(GROUP_TOKENS // BLOCK_TOKENS, accumulators // size))

    def _start_of(self, end: Value) -> Value:
        """The first token that a query sees which sees none from `end` on."""
        return maximum(end - self.run.window, 0)

    def attend(self) -> None:
        """The whole result, one part after another."""
        self._start_merging()
        with self.k.range(*parts_of(self.start, self.end)) as part:
            self.run.softmax.start(self.size)
            self.start_sums()
            with self.k.range(*groups_of(part, self.start, self.end)) as group:
                self.score(group)
                self.run.softmax.step(self.size)
                self.add_values(group)
            self._merge()
        self._finish_merging()

    def finish_only_part(self) -> None:
        """The part that was gone through is the whole."""
        self._start_merging()
        self._merge()
        self._finish_merging()

    def keep(self, stats: Pointer) -> None:
        """Maximum and sum of the part that was gone through, into `stats` [T, Hq, 2]."""
        softmax = self.run.softmax
        with self.k.range(0, self._count) as query:
            here, place = stats + self.run.head(self._first + query) * 2, query + self.run.place
            here[0], here[1] = softmax.maxima[place], softmax.sum(place)

    def _start_merging(self) -> None:
        with self._each_query() as (query, _, output):
            self.run.merger.start(query, output)

    def _merge(self) -> None:
        softmax = self.run.softmax
        with self._each_query() as (query, made, output):
            place = query + self.run.place
            self.run.merger.merge(query, softmax.maxima[place], softmax.sum(place), made, output)

    def _finish_merging(self) -> None:
        with self._each_query() as (query, _, output):
            self.run.merger.finish(query, output)

    @contextlib.contextmanager
    def _each_query(self) -> Iterator[tuple[Value, Pointer, Pointer]]:
        """A loop over the queries that there are: number in the tile, rows of made and output."""
        with self.k.range(0, self._count) as query:
            offset = self.run.head(self._first + query) * self.run.head_dim
            yield query, self.run.made + offset, self.run.output + offset

    def start_sums(self) -> None:
        """Before the first group of a part."""
        with self._each_query() as (_, made, _):
            store_zeros(self.k, made, self.run.head_dim)

    def score(self, group: Value) -> None:
        """The scores of a group, for a step of the softmax."""
        self._scores(*self._seen(group))

    def add_values(self, group: Value) -> None:
        """The values of a group times what a step of the softmax made of its scores."""
        self._values(*self._seen(group))

    def _seen(self, group: Value) -> tuple[Value, Value, Value]:
        """A group's first token, the first that a query sees, and the one behind the last."""
        base = group * GROUP_TOKENS
        return base, maximum(self.start, base), minimum(self.end, base + GROUP_TOKENS)

    def _scores(self, base: Value, low: Value, high: Value) -> None:
        """weights[i][j] = q_i · k_j · scale · log2(e); -∞ where query i doesn't see token j."""
        k, lanes = self.k, BLOCK_TOKENS
        hidden = k.constant(f32.x(lanes), -math.inf)
        with k.if_(high - low < GROUP_TOKENS):
            for weights in self.weights:
                for place in range(0, GROUP_TOKENS, lanes):
                    weights.store(place, hidden)
        last = (high - 1) // lanes
        with k.range(low // lanes, last + 1, self.vectors) as block:
            # What lies behind the last block is read from it, and hidden.
            numbers = [minimum(block + v, last) for v in range(self.vectors)]
            keys, values = ([self.run.half(n, which) for n in numbers] for which in (0, 1))
            sums = [[k.variable(f32.x(lanes), 0.0) for _ in keys] for _ in self.q]
            with k.range(0, self.run.head_dim) as d:
                for v, key in enumerate(keys):
                    elements = key.vector(d * lanes, lanes).to(f32)
                    if self.run.fetches_ahead:
                        values[v].prefetch(d * lanes, level=2)
                    for query, mine in zip(self.q, sums, strict=True):
                        mine[v].set(fma(query[d].splat(lanes), elements, mine[v].value))
            for v in range(self.vectors):
                tokens = (block + v) * lanes
                with k.if_(tokens < base + GROUP_TOKENS):
                    self._store_scores(tokens, base, [mine[v].value for mine in sums])

    def _store_scores(self, tokens: Value, base: Value, sums: list[Value]) -> None:
        """The scores of 16 tokens."""
        # The lowest end and the highest start: mostly, every query sees every token.
        seen = (tokens + BLOCK_TOKENS <= self.ends[0]) & (tokens >= self._start_of(self.end))
        places = [weights + (tokens - base) for weights in self.weights]
        scores = [total * self.scale for total in sums]
        with self.k.if_else(seen) as (then, otherwise):
            with then:
                for place, score in zip(places, scores, strict=True):
                    place.store(0, score)
            with otherwise:
                for i, (place, score) in enumerate(zip(places, scores, strict=True)):
                    place.store(0, self._hide(i, tokens, score))

    def _hide(self, query: int, tokens: Value, scores: Value) -> Value:
        """The scores of 16 tokens, -∞ where a query doesn't see them."""
        end = self.ends[query]
        first, last = self._start_of(end) - tokens, end - tokens
        seen = self._lanes_before(last) & ~self._lanes_before(first)
        return seen.select(scores, -math.inf)

    def _lanes_before(self, number: Value) -> Value:
        """The lanes below `number`, i1[16]."""
        count = minimum(maximum(number, 0), BLOCK_TOKENS).to(u32)
        return ((self.k.constant(u32, 1) << count) - 1).to(u16).bits_as(i1)

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

    def _keys_of_next_group(self, block: Value) -> Pointer:
        last = (self.end - 1) // BLOCK_TOKENS
        return self.run.half(minimum(block + GROUP_TOKENS // BLOCK_TOKENS, last), 0)

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
        factors = run.softmax.factors + run.place
        sums = [
            [
                k.variable(f32.x(width), made.vector(at, width) * factors[i])
                for at, width in zip(offsets, columns, strict=True)
            ]
            for i, made in enumerate(self.made)
        ]
        with k.range(low // BLOCK_TOKENS, (high - 1) // BLOCK_TOKENS + 1) as block:
            values = run.half(block, 1)
            next_keys = self._keys_of_next_group(block) + start * BLOCK_TOKENS
            row, step = sum(columns), _FETCH_BYTES // next_keys.element.size_in_bytes
            tokens = block * BLOCK_TOKENS
            first, last = maximum(low, tokens), minimum(high, tokens + BLOCK_TOKENS)

            def add(slot: Value | int) -> None:
                vectors = [
                    values.vector(at + slot * run.head_dim, width).to(f32)
                    for at, width in zip(offsets, columns, strict=True)
                ]
                place = tokens - base + slot
                for weights, mine in zip(self.weights, sums, strict=True):
                    weight = weights[place]
                    for total, vector in zip(mine, vectors, strict=True):
                        total.set(fma(weight.splat(vector.type.lanes), vector, total.value))

            with k.if_else(last - first == BLOCK_TOKENS) as (then, otherwise):
                with then:  # straight-line code: a loop of 16 steps ends in a misprediction
                    for slot in range(BLOCK_TOKENS):
                        add(slot)
                        if run.fetches_ahead:
                            for place in range(slot * row, (slot + 1) * row):
                                if place % step == 0:
                                    next_keys.prefetch(place, level=2)
                with otherwise, k.range(first - tokens, last - tokens) as some:
                    add(some)
        for made, mine in zip(self.made, sums, strict=True):
            for at, total in zip(offsets, mine, strict=True):
                made.store(at, total.value)
