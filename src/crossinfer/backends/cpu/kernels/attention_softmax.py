"""The state of attention's softmax: running within a part of the tokens, and merged over parts."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.backends.cpu.kernels.batch import widths
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import exp2_of_negative, maximum, reduce_add, reduce_max
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32
from crossinfer.jit.value import Value

GROUP_TOKENS = 64
_NO_MAXIMUM = -1e30
"""Below every score, yet finite: a difference with -∞ is not NaN."""


class Softmax:
    """The running softmax of the queries of a tile, in memory: a step is a loop over queries."""

    def __init__(self, k: KernelBuilder, queries: int) -> None:
        self._k = k
        self.maxima = k.scratch(f32, 2 * queries)
        self._sums = k.scratch(f32, queries * BLOCK_TOKENS)
        self.weights = k.scratch(f32, queries * GROUP_TOKENS)
        """[query][token]: scores before a step, weights after it."""
        self.factors = self.maxima + queries
        """What the last step made of sums so far, by query."""

    def start(self, queries: int) -> None:
        for query in range(queries):
            self.maxima[query] = _NO_MAXIMUM
            self._sums.store(query * BLOCK_TOKENS, self._k.constant(f32.x(BLOCK_TOKENS), 0.0))

    def step(self, queries: int) -> None:
        """Turn the scores of a group into weights."""
        with self._k.range(0, queries) as query:
            weights = self.weights + query * GROUP_TOKENS
            places = range(0, GROUP_TOKENS, BLOCK_TOKENS)
            scores = [weights.vector(place, BLOCK_TOKENS) for place in places]
            largest = reduce_max(maximum(maximum(*scores[:2]), maximum(*scores[2:])))
            before = self.maxima[query]
            new = maximum(largest, before)
            factor = exp2_of_negative(before - new)
            made = [exp2_of_negative(score - new) for score in scores]
            for place, weight in zip(places, made, strict=True):
                weights.store(place, weight)
            old = self._sums.vector(query * BLOCK_TOKENS, BLOCK_TOKENS)
            total = old * factor + ((made[0] + made[1]) + (made[2] + made[3]))
            self._sums.store(query * BLOCK_TOKENS, total)
            self.maxima[query] = new
            self.factors[query] = factor

    def sum(self, query: Value) -> Value:
        """The sum of a query's weights."""
        return reduce_add(self._sums.vector(query * BLOCK_TOKENS, BLOCK_TOKENS))


class Merger:
    """Results of parts merged into one, in the order of the parts, for several queries.

    Of a part with maximum m, sum l and sums of values o, and the whole so far (M, L, O):

        M' = max(M, m)      L' = L · 2^(M - M') + l · 2^(m - M')      O' likewise
    """

    def __init__(self, k: KernelBuilder, queries: int, head_dim: int) -> None:
        self._k = k
        self._head_dim = head_dim
        self._maxima = k.scratch(f32, 2 * queries)
        self._sums = self._maxima + queries

    def start(self, query: Value, goal: Pointer) -> None:
        """O starts as zeros at `goal`."""
        self._maxima[query] = _NO_MAXIMUM
        self._sums[query] = 0.0
        store_zeros(self._k, goal, self._head_dim)

    def merge(
        self, query: Value, highest: Value, total: Value, part: Pointer, goal: Pointer
    ) -> None:
        """m, l and o of the next part."""
        before = self._maxima[query]
        new = maximum(highest, before)
        old, added = exp2_of_negative(before - new), exp2_of_negative(highest - new)
        self._maxima[query] = new
        self._sums[query] = self._sums[query] * old + total * added
        for start, width in columns_of(self._k, self._head_dim):
            value = goal.vector(start, width) * old + part.vector(start, width) * added
            goal.store(start, value)

    def finish(self, query: Value, goal: Pointer) -> None:
        """Divide by the sum.

        Adding zero makes +0 of -0: whether a product with weight 0 was added must not show.
        """
        total = self._sums[query]
        for start, width in columns_of(self._k, self._head_dim):
            goal.store(start, goal.vector(start, width) / total + 0.0)


def columns_of(k: KernelBuilder, head_dim: int) -> Iterator[tuple[Value, int]]:
    """Vectors that cover a head, as (start, width), in a loop for the whole ones.

    The body of a `for` over this is written once for these, and for each vector of the rest.
    """
    whole = head_dim // BLOCK_TOKENS * BLOCK_TOKENS
    with k.range(0, whole, BLOCK_TOKENS) as start:
        yield start, BLOCK_TOKENS
    for start_of_rest, width in widths(head_dim - whole):
        yield k.index(whole + start_of_rest), width


def store_zeros(k: KernelBuilder, goal: Pointer, head_dim: int) -> None:
    for start, width in columns_of(k, head_dim):
        goal.store(start, k.constant(f32.x(width), 0.0))
