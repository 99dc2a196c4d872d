"""linear with float32, float16 and bfloat16 weights: multiply-adds in float32, nothing rounded.

    y[token, row] = Σ_k weight[row, k] · x[token, k]

in ascending order of k, whatever the number of tokens. To keep float32's rounding small in long
rows, runs of 128 columns are summed apart and then added up.

Narrow tiles (see `narrow_layout`) are multiplied in units of their power of two, which changes no
bit; their exceptions follow behind all runs.

A kernel takes a part of a tile's 32 rows and `tokens` tokens at a time; the weight is widened once
for all of them, and the activations are memory operands of the multiply-adds. One token:
matrix-vector, whose activations are x itself; else they are as `arrange` leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS, has_records
from crossinfer.backends.cpu.kernels.narrow_layout import GROUP_COLUMNS
from crossinfer.backends.cpu.kernels.narrow_tiles import Tile, wide
from crossinfer.core.dtypes import DType
from crossinfer.core.records import record
from crossinfer.jit.arithmetic import fma, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import Type, bf16, f16, f32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable

RUN_COLUMNS = 128
TOKENS_OF_DECODING = 4
"""So few that a product waits for memory."""
ELEMENTS: dict[DType, Type] = {DType.F32: f32, DType.F16: f16, DType.BF16: bf16}


@record
class ScalarProduct:
    """Products of tiles of one scalar type with tiles of tokens."""

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

        `weight` and `activations` are bytes.
        """
        k, tokens = self.k, self.tokens
        x = activations.cast(f32) + token_tile * self.columns * tokens
        if not has_records(self.storage):
            size = SCALAR_ROWS * self.storage.block_bytes
            self._sum_plain(weight + row_tile * self.columns * size, x, part, sums)
            return
        tile = Tile.find(k, weight, self.rows, self.columns, row_tile)
        with k.if_else(tile.is_narrow) as (then, otherwise):
            with then:
                self._sum_narrow(tile, x, part, sums)
            with otherwise:
                self._sum_plain(tile.start, x, part, sums)

    def _sum_plain(self, tile: Pointer, x: Pointer, part: RowPart, sums: Pointer) -> None:
        element = ELEMENTS[self.storage]
        size = SCALAR_ROWS * element.size_in_bytes

        def add(column: Value, totals: Sequence[Variable]) -> None:
            weight = part.load(tile + column * size, 0, element).to(f32)
            self._multiply(weight, x + column * self.tokens, part.lanes, totals)

        self._sum_runs(1, add, part, sums)

    def _sum_narrow(self, tile: Tile, x: Pointer, part: RowPart, sums: Pointer) -> None:
        def add(column: Value, totals: Sequence[Variable]) -> None:
            if self.tokens <= TOKENS_OF_DECODING:
                tile.fetch_ahead(column)
            here = x + column * self.tokens
            for pair in tile.group(column, part.first, part.lanes):
                for weight in wide(pair):
                    self._multiply(weight, here, part.lanes, totals)
                    here = here + self.tokens

        self._sum_runs(GROUP_COLUMNS, add, part, sums, tile.power)
        tile.add_exceptions(
            part, sums, self.tokens, lambda column, token: x[column * self.tokens + token]
        )

    def _multiply(self, weight: Value, x: Pointer, lanes: int, totals: Sequence[Variable]) -> None:
        """Add the products of one column, of which `x` are the activations."""
        for token, total in enumerate(totals):
            total.set(fma(weight, x[token].splat(lanes), total.value))

    def _sum_runs(
        self,
        step: int,
        add: Callable[[Value, Sequence[Variable]], None],
        part: RowPart,
        sums: Pointer,
        scale: Value | None = None,
    ) -> None:
        """The totals of all runs, times `scale`, into `sums`; `add` adds `step` columns to those of
        one run.
        """
        k, lanes = self.k, part.lanes
        whole = [k.variable(f32.x(lanes)) for _ in range(self.tokens)]
        with k.range(0, self.columns, RUN_COLUMNS) as run:
            end = minimum(run + RUN_COLUMNS, self.columns)
            totals = [k.variable(f32.x(lanes)) for _ in whole]
            with k.range(run, end, step) as column:
                add(column, totals)
            for sum_, total in zip(whole, totals, strict=True):
                sum_ += total.value
        for token, sum_ in enumerate(whole):
            sums.store(token * lanes, sum_.value if scale is None else sum_.value * scale)
