"""linear with float32, float16 and bfloat16 weights: multiply-adds in float32, nothing rounded.

    y[token, row] = Σ_k weight[row, k] · x[token, k]

in ascending order of k, whatever the number of tokens. To keep float32's rounding small in long
rows, runs of 128 columns are summed apart and then added up.

A kernel takes one tile (16 rows) and `tokens` tokens at a time; the weight is widened once for all
of them, and the activations are memory operands of the multiply-adds. One token: matrix-vector,
whose activations are x itself; else they are as `arrange` leaves them.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import TILE_ROWS
from crossinfer.core.dtypes import DType
from crossinfer.core.records import record
from crossinfer.jit.arithmetic import fma, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import Type, bf16, f16, f32
from crossinfer.jit.value import Value

RUN_COLUMNS = 128
ELEMENTS: dict[DType, Type] = {DType.F32: f32, DType.F16: f16, DType.BF16: bf16}


@record
class ScalarProduct:
    """Products of tiles of one scalar type with tiles of tokens."""

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

        `weight` and `activations` are bytes.
        """
        k, element, tokens = self.k, ELEMENTS[self.storage], self.tokens
        x = activations.cast(f32) + token_tile * self.columns * tokens
        tile = weight + row_tile * self.columns * (TILE_ROWS * element.size_in_bytes)
        for token in range(tokens):
            sums.store(token * part.lanes, k.constant(f32.x(part.lanes), 0))
        done: Value | int = 0
        if tokens == 1:
            # A sum waits for the one before it; two runs that take turns wait half as long.
            run = k.index(RUN_COLUMNS)
            done = self.columns - self.columns % (2 * RUN_COLUMNS)
            with k.range(0, done, 2 * RUN_COLUMNS) as start:
                _add_runs(k, tile, x, start, run, element, part, tokens, sums, 2)
        with k.range(done, self.columns, RUN_COLUMNS) as start:
            columns = minimum(self.columns - start, RUN_COLUMNS)
            _add_runs(k, tile, x, start, columns, element, part, tokens, sums, 1)


def _add_runs(
    k: KernelBuilder,
    tile: Pointer,
    x: Pointer,
    start: Value,
    columns: Value,
    element: Type,
    part: RowPart,
    tokens: int,
    sums: Pointer,
    runs: int,
) -> None:
    """Add the products of `runs` runs, which start RUN_COLUMNS apart, to `sums`.

    Of each the first `columns` columns; `sums` is f32 [tokens][lanes].
    """
    size = TILE_ROWS * element.size_in_bytes
    totals = [[k.variable(f32.x(part.lanes)) for _ in range(tokens)] for _ in range(runs)]
    with k.range(start, start + columns) as first:
        for number, mine in enumerate(totals):
            column = first + number * RUN_COLUMNS
            weight = part.load(tile + column * size, 0, element).to(f32)
            here = x + column * tokens
            for token, total in enumerate(mine):
                total.set(fma(weight, here[token].splat(part.lanes), total.value))
    for mine in totals:
        for token, total in enumerate(mine):
            before = sums.vector(token * part.lanes, part.lanes)
            sums.store(token * part.lanes, before + total.value)
