"""The state of attention's softmax: running within a part of the tokens, and merged over parts."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.backends.cpu.kernels.attention_sizes import GROUP_TOKENS, STATE_FLOATS
from crossinfer.backends.cpu.kernels.batch import widths
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import exp2_of_negative, maximum, reduce_add, reduce_max
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32
from crossinfer.jit.value import Value

_NO_MAXIMUM = -1e30
"""Below every score, yet finite: a difference with -∞ is not NaN."""


class Softmax:
    """The running softmax of at most `queries` queries.

    `state` is f32 [queries, STATE_FLOATS]. One step for many queries costs less than many steps:
    what has to wait for maxima waits once.
    """

    def __init__(self, k: KernelBuilder, queries: int, state: Pointer) -> None:
        self._k = k
        self._state = state
        self._lanes = 1 << (queries - 1).bit_length()
        self._largest = k.scratch(f32, self._lanes)
        self.maxima = k.scratch(f32, self._lanes)
        self.factors = k.scratch(f32, self._lanes)
        """What the last step made of sums so far, by query."""

    def weights(self, query: Value | int) -> Pointer:
        """A query's scores of a group before a step, its weights after it: f32 [GROUP_TOKENS]."""
        return self._state + query * STATE_FLOATS

    def _sums(self, query: Value) -> Pointer:
        return self.weights(query) + GROUP_TOKENS

    def start(self, queries: Value | int) -> None:
        """Before the first step of a part. The maxima of lanes without a query may be anything."""
        self.maxima.store(0, self._k.constant(f32.x(self._lanes), _NO_MAXIMUM))
        self._largest.store(0, self._k.constant(f32.x(self._lanes), _NO_MAXIMUM))
        with self._k.range(0, queries) as query:
            self._sums(query).store(0, self._k.constant(f32.x(BLOCK_TOKENS), 0.0))

    def step(self, queries: Value | int) -> None:
        """Turn the scores of a group into weights."""
        k = self._k
        with k.range(0, queries) as query:
            scores = self._vectors(query)
            self._largest[query] = reduce_max(maximum(maximum(*scores[:2]), maximum(*scores[2:])))
        before = self.maxima.vector(0, self._lanes)
        new = maximum(self._largest.vector(0, self._lanes), before)
        self.maxima.store(0, new)
        self.factors.store(0, exp2_of_negative(before - new))
        with k.range(0, queries) as query:
            highest = self.maxima[query]
            made = [exp2_of_negative(score - highest) for score in self._vectors(query)]
            for number, weight in enumerate(made):
                self.weights(query).store(number * BLOCK_TOKENS, weight)
            sums = self._sums(query)
            old = sums.vector(0, BLOCK_TOKENS) * self.factors[query]
            sums.store(0, old + ((made[0] + made[1]) + (made[2] + made[3])))

    def _vectors(self, query: Value) -> list[Value]:
        weights = self.weights(query)
        return [weights.vector(n, BLOCK_TOKENS) for n in range(0, GROUP_TOKENS, BLOCK_TOKENS)]

    def sum(self, query: Value) -> Value:
        """The sum of a query's weights."""
        return reduce_add(self._sums(query).vector(0, BLOCK_TOKENS))


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
