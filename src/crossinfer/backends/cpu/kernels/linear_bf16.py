"""linear with float16 and bfloat16 weights in bfloat16 products, for precision "fast".

    y[token, row] = Σ_k bf16(weight[row, k]) · bf16(x[token, k])

in float32 sums of two products at a time, in ascending order of k, whatever the number of tokens.
As in the exact kernels, runs of 128 columns are summed apart. What is rounded: activations, and
float16 weights.

Activations are pairs of columns (`build_arrange_pairs`), for one token, too. x86-64 with the
bfloat16 extension of AVX-512 only.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.activation_tile import SEGMENT_COLUMNS
from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS
from crossinfer.backends.cpu.kernels.linear_scalars import ELEMENTS, RUN_COLUMNS
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

LANES = 16
"""Of the vectors of these products."""
_SIDE_BY_SIDE = [row + LANES * half for row in range(LANES) for half in (0, 1)]


@record
class ShortProduct:
    """Products of tiles of a 16-bit type with tiles of tokens."""

    k: KernelBuilder
    storage: DType
    tokens: int
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
        tile = weight.cast(u16) + (row_tile * self.columns * SCALAR_ROWS + part.first)
        places = range(0, tokens * part.lanes, LANES)
        for place in places:
            sums.store(place, k.constant(f32.x(LANES), 0))
        with k.range(0, self.columns, RUN_COLUMNS) as run:
            totals = [k.variable(f32.x(LANES)) for _ in places]

            def add(column: Value, codes: list[Value]) -> None:
                here = x + column // 2 * tokens
                for number, total in enumerate(totals):
                    token, vector = divmod(number, len(codes))
                    both = here[token].splat(LANES)
                    total.set(pair_dot(total.value, codes[vector], both))

            end = minimum(run + RUN_COLUMNS, self.columns)
            whole = end - (end - run) % 2
            rows = range(0, part.lanes, LANES)
            with k.range(run, whole, 2) as column:
                add(column, [self._pair(tile + (column * SCALAR_ROWS + row)) for row in rows])
            with k.if_(whole < end):
                add(whole, [self._last(tile + (whole * SCALAR_ROWS + row)) for row in rows])
            for place, total in zip(places, totals, strict=True):
                sums.store(place, sums.vector(place, LANES) + total.value)

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
