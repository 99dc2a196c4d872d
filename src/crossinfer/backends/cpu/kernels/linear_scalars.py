"""linear with float32, float16 and bfloat16 weights: multiply-adds in float32, nothing rounded.

    y[token, row] = Σ_k weight[row, k] · x[token, k]

in ascending order of k, whatever the number of tokens. To keep float32's rounding small in long
rows, runs of 128 columns are summed apart and then added up.

One kernel takes one tile (16 rows) and `tokens` tokens; the weight is widened once for all of them,
and the activations are memory operands of the multiply-adds. One token: matrix-vector.

Dispatch: workgroup = tile of tokens + token tiles · tile of rows. Reads activations (for one token
x itself, else as `arrange` leaves them), the weight, bias, gate, residual; writes output f32
[T, N].
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.epilogue import Epilogue
from crossinfer.backends.cpu.kernels.layout import TILE_ROWS
from crossinfer.core.dtypes import DType
from crossinfer.jit.arithmetic import fma, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, bf16, f16, f32, i32, u8
from crossinfer.jit.value import Value

RUN_COLUMNS = 128
ELEMENTS: dict[DType, Type] = {DType.F32: f32, DType.F16: f16, DType.BF16: bf16}


def build_linear_scalars(
    symbol: str, target: Target, storage: DType, tokens: int, optional: Sequence[str]
) -> str:
    """Views: activations, weight, the optional operands in order, output.

    Constants: i32 T, N, columns, token tiles.
    """
    k = KernelBuilder(symbol, target)
    element = ELEMENTS[storage]
    activations, weight, *others, output = k.views(f32, u8, *[f32] * (len(optional) + 1))
    T, N, columns, token_tiles = k.constants(i32, i32, i32, i32)
    epilogue = Epilogue(dict(zip(optional, others, strict=True)), output, N)
    lanes = min(TILE_ROWS, target.lanes())
    sums = k.scratch(f32, tokens * lanes)
    with k.workgroups() as group:
        row_tile, token_tile = group // token_tiles, group % token_tiles
        x = activations + token_tile * columns * tokens
        tile = weight + row_tile * columns * (TILE_ROWS * element.size_in_bytes)
        with k.range(0, TILE_ROWS, lanes) as first:
            part = RowPart(first, lanes)
            for token in range(tokens):
                sums.store(token * lanes, k.constant(f32.x(lanes), 0))
            with k.range(0, columns, RUN_COLUMNS) as run:
                end = minimum(run + RUN_COLUMNS, columns)
                _add_run(k, tile, x, run, end, element, part, tokens, sums)
            count = minimum(T - token_tile * tokens, tokens)
            row = row_tile * TILE_ROWS + first
            epilogue.store(k, sums, lanes, row, token_tile * tokens, count)
    return k.finish()


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
    size = TILE_ROWS * element.size_in_bytes
    totals = [k.variable(f32.x(part.lanes)) for _ in range(tokens)]
    with k.range(start, end) as column:
        weight = part.load(tile + column * size, 0, element).to(f32)
        here = x + column * tokens
        for token, total in enumerate(totals):
            total.set(fma(weight, here[token].splat(part.lanes), total.value))
    for token, total in enumerate(totals):
        sums.store(token * part.lanes, sums.vector(token * part.lanes, part.lanes) + total.value)
