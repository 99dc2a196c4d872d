"""linear with float16 and bfloat16 weights in bfloat16 products, for precision "fast".

    y[token, row] = Σ_k bf16(weight[row, k]) · bf16(x[token, k])

in float32 sums of two products at a time, in ascending order of k, whatever the number of tokens.
As in the exact kernels, runs of 128 columns are summed apart. What is rounded: activations, and
float16 weights. The numbers of narrow tiles (see `narrow_layout`) are bfloat16 as they come.

Activations are pairs of columns (`build_arrange_pairs`), for one token, too. x86-64 with the
bfloat16 extension of AVX-512 only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crossinfer.backends.cpu.kernels.activation_tile import SEGMENT_COLUMNS
from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS
from crossinfer.backends.cpu.kernels.linear_scalars import (
    ELEMENTS,
    RUN_COLUMNS,
    TOKENS_OF_DECODING,
)
from crossinfer.backends.cpu.kernels.narrow_layout import GROUP_COLUMNS
from crossinfer.backends.cpu.kernels.narrow_tiles import Tile
from crossinfer.core.dtypes import DType
from crossinfer.core.records import record
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.short_dot import pair_dot, round_to_short, to_neighbour_pairs, to_pairs
from crossinfer.jit.target import Target
from crossinfer.jit.transpose import transposed
from crossinfer.jit.types import f32, i32, u16, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable

LANES = 16
"""Of the vectors of these products."""
_SIDE_BY_SIDE = [row + LANES * half for row in range(LANES) for half in (0, 1)]


@record
class ShortProduct:
    """Products of tiles of a 16-bit type with tiles of tokens."""

    k: KernelBuilder
    storage: DType
    tokens: int
    rows: Value
    columns: Value

    def sum(
        self,
        weight: Pointer,
        row_tile: Value,
        activations: Pointer,
        token_tile: Value,
        part: RowPart,
        sums: Pointer,
    ) -> None:
        """The products of a tile of rows with a tile of tokens, into `sums`, f32 [tokens][lanes].

        A part has 16 lanes, or 32 with one token.
        """
        k, tokens = self.k, self.tokens
        pairs = (self.columns + 1) // 2
        x = activations.cast(u32) + token_tile * pairs * tokens
        tile = Tile.find(k, weight, self.rows, self.columns, row_tile)
        with k.if_else(tile.is_narrow) as (then, otherwise):
            with then:
                self._sum_narrow(tile, x, part, sums)
            with otherwise:
                self._sum_plain(tile.start.cast(u16) + part.first, x, part, sums)

    def _places(self, part: RowPart) -> range:
        """Where in the sums vectors start."""
        return range(0, self.tokens * part.lanes, LANES)

    def _sum_plain(self, tile: Pointer, x: Pointer, part: RowPart, sums: Pointer) -> None:
        rows = range(0, part.lanes, LANES)

        def add(start: Value, end: Value, totals: Sequence[Variable]) -> None:
            whole = end - (end - start) % 2
            with self.k.range(start, whole, 2) as column:
                pairs = [self._pair(tile + (column * SCALAR_ROWS + row)) for row in rows]
                self._multiply(pairs, x + column // 2 * self.tokens, totals)
            with self.k.if_(whole < end):
                last = [self._last(tile + (whole * SCALAR_ROWS + row)) for row in rows]
                self._multiply(last, x + whole // 2 * self.tokens, totals)

        self._sum_runs(add, part, sums)

    def _sum_narrow(self, tile: Tile, x: Pointer, part: RowPart, sums: Pointer) -> None:
        k, tokens = self.k, self.tokens

        def add(start: Value, end: Value, totals: Sequence[Variable]) -> None:
            with k.range(start, end, GROUP_COLUMNS) as column:
                if tokens <= TOKENS_OF_DECODING:
                    tile.fetch_ahead(column)
                rows = range(0, part.lanes, LANES)
                groups = [tile.group(column, part.first + row, LANES) for row in rows]
                for number, pairs in enumerate(zip(*groups, strict=True)):
                    self._multiply(pairs, x + (column // 2 + number) * tokens, totals)

        def activation(column: Value, token: int) -> Value:
            both = x[column // 2 * tokens + token]
            return (both >> (column % 2 * 16).to(u32) << 16).bits_as(f32)

        self._sum_runs(add, part, sums, tile.power)
        tile.add_exceptions(
            part, sums, tokens, activation, lambda value: (round_to_short(value) << 16).bits_as(f32)
        )

    def _multiply(self, weights: Sequence[Value], x: Pointer, totals: Sequence[Variable]) -> None:
        """Add the products of a pair of columns, of which `x` are the activations."""
        for number, total in enumerate(totals):
            token, vector = divmod(number, len(weights))
            total.set(pair_dot(total.value, weights[vector], x[token].splat(LANES)))

    def _sum_runs(
        self,
        add: Callable[[Value, Value, Sequence[Variable]], None],
        part: RowPart,
        sums: Pointer,
        scale: Value | None = None,
    ) -> None:
        """The totals of all runs, times `scale`, into `sums`; `add` adds the columns of one run."""
        k, places = self.k, self._places(part)
        whole = [k.variable(f32.x(LANES)) for _ in places]
        with k.range(0, self.columns, RUN_COLUMNS) as run:
            totals = [k.variable(f32.x(LANES)) for _ in places]
            add(run, minimum(run + RUN_COLUMNS, self.columns), totals)
            for sum_, total in zip(whole, totals, strict=True):
                sum_ += total.value
        for place, sum_ in zip(places, whole, strict=True):
            sums.store(place, sum_.value if scale is None else sum_.value * scale)

    def _pair(self, rows: Pointer) -> Value:
        """Two columns of 16 rows as u32[16] of pairs."""
        if self.storage is DType.BF16:
            low, high = (rows.vector(SCALAR_ROWS * n, LANES) for n in (0, 1))
            return low.shuffle(_SIDE_BY_SIDE, high).bits_as(u32)
        halves = rows.cast(ELEMENTS[self.storage])
        low, high = (halves.vector(SCALAR_ROWS * n, LANES).to(f32) for n in (0, 1))
        return to_pairs(low, high)

    def _last(self, rows: Pointer) -> Value:
        """One column of 16 rows, paired with zeros."""
        if self.storage is DType.BF16:
            return rows.vector(0, LANES).to(u32)
        low = rows.cast(ELEMENTS[self.storage]).vector(0, LANES).to(f32)
        return to_pairs(low, self.k.constant(f32.x(LANES), 0.0))


def build_arrange_pairs(symbol: str, target: Target, tokens: int) -> str:
    """x f32 [T, K] to tiles of `tokens` rows of pairs of bfloat16: u32 [K / 2, up][tokens].

    Views: x f32, tiles. Constants and dispatch: as of `build_arrange`.
    """
    k = KernelBuilder(symbol, target)
    x, tiles = k.views(f32, u32)
    T, K, segments = k.constants(i32, i32, i32)
    pairs = (K + 1) // 2
    with k.workgroups() as group:
        number, start = group // segments, group % segments * SEGMENT_COLUMNS
        made, first = tiles + number * pairs * tokens, number * tokens
        end = minimum(start + SEGMENT_COLUMNS, K)
        if tokens == LANES:
            rows = [x + minimum(first + token, T - 1) * K for token in range(tokens)]
            whole = end - (end - start) % (2 * tokens)
            with k.range(start, whole, 2 * tokens) as column:
                halves = [[row.vector(column + tokens * n, tokens) for n in (0, 1)] for row in rows]
                vectors = transposed([to_neighbour_pairs(*both) for both in halves])
                for place, vector in enumerate(vectors):
                    made.store((column // 2 + place) * tokens, vector)
            start = whole
        with k.range(0, minimum(T - first, tokens)) as token:
            row, even = x + (first + token) * K, end - end % 2
            with k.range(start, even, 2) as column:
                low, high = (round_to_short(row[column + n]) for n in (0, 1))
                made[column // 2 * tokens + token] = low | (high << 16)
            with k.if_(even < end):
                made[even // 2 * tokens + token] = round_to_short(row[even])
    return k.finish()
