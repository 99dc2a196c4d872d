"""linear with float32, float16 and bfloat16 weights: multiply-adds in float32, nothing rounded.

    y[token, row] = Σ_k weight[row, k] · x[token, k]

in ascending order of k, whatever the number of tokens. To keep float32's rounding small in long
rows, runs of 128 columns are summed apart and then added up.

A kernel takes a part of a tile's 32 rows and `tokens` tokens at a time; the weight is widened once
for all of them, and the activations are memory operands of the multiply-adds. One token:
matrix-vector, whose activations are x itself; else they are as `arrange` leaves them.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS
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
        tile = weight + row_tile * self.columns * (SCALAR_ROWS * element.size_in_bytes)
        for token in range(tokens):
            sums.store(token * part.lanes, k.constant(f32.x(part.lanes), 0))
        with k.range(0, self.columns, RUN_COLUMNS) as run:
            end = minimum(run + RUN_COLUMNS, self.columns)
            _add_run(k, tile, x, run, end, element, part, tokens, sums)


def _add_run(
    k: KernelBuilder,
    tile: Pointer,
    x: Pointer,
    start: Value,
    end: Value,
    element: Type,
    part: RowPart,
    tokens: int,
    sums: Pointer,
) -> None:
    """Add the products of columns `start … end - 1` to `sums`, f32 [tokens][lanes]."""
    size = SCALAR_ROWS * element.size_in_bytes
    totals = [k.variable(f32.x(part.lanes)) for _ in range(tokens)]
    with k.range(start, end) as column:
        weight = part.load(tile + column * size, 0, element).to(f32)
        here = x + column * tokens
        for token, total in enumerate(totals):
            total.set(fma(weight, here[token].splat(part.lanes), total.value))
    for token, total in enumerate(totals):
        sums.store(token * part.lanes, sums.vector(token * part.lanes, part.lanes) + total.value)
