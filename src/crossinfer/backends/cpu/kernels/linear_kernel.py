"""The kernels of linear and gated_linear: products of tiles, then what ends them.

    linear         output = act(gate) · (x · weightᵀ + bias) + residual
    gated_linear   output = silu(x · gate_weightᵀ + gate_bias) · (x · up_weightᵀ + up_bias)

Dispatch: workgroup = tile of tokens + token tiles · tile of rows, so that neighbours share a tile
of the weight. Reads activations (`activations.py`), weights and the optional operands; writes
output f32 [T, N]. `linear_blocks` and `linear_scalars` are the products themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.epilogue import Epilogue
from crossinfer.backends.cpu.kernels.layout import tile_rows
from crossinfer.backends.cpu.kernels.linear_bf16 import ShortProduct
from crossinfer.backends.cpu.kernels.linear_blocks import BlockProduct
from crossinfer.backends.cpu.kernels.linear_scalars import ScalarProduct
from crossinfer.formats.blocks import BlockFormat, StorageType
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i32, u8


def build_linear(
    symbol: str, target: Target, storage: StorageType, tokens: int, optional: Sequence[str]
) -> str:
    """Views: activations, weight, the optional operands in order, output.

    Constants: i32 T, N, blocks or columns of a row, token tiles.
    """
    return _build(symbol, target, storage, tokens, optional, ("weight",))


def build_gated_linear(
    symbol: str, target: Target, storage: StorageType, tokens: int, optional: Sequence[str]
) -> str:
    """Views: activations, up_weight, gate_weight, the optional operands in order, output.

    Those are among `epilogue.BIASES`; "bias" is that of up. Constants: as of `build_linear`.
    """
    return _build(symbol, target, storage, tokens, optional, ("up_weight", "gate_weight"))


def _build(
    symbol: str,
    target: Target,
    storage: StorageType,
    tokens: int,
    optional: Sequence[str],
    weights: Sequence[str],
) -> str:
    k = KernelBuilder(symbol, target)
    activations, *views = k.views(u8, *[u8] * len(weights), *[f32] * (len(optional) + 1))
    matrices, others, output = views[: len(weights)], views[len(weights) : -1], views[-1]
    T, N, steps, token_tiles = k.constants(i32, i32, i32, i32)
    product: BlockProduct | ScalarProduct | ShortProduct
    if isinstance(storage, BlockFormat):
        product = BlockProduct.of(k, storage, tokens, steps)
    elif target.has("avx512bf16"):
        product = ShortProduct(k, storage, tokens, N, steps)
    else:
        product = ScalarProduct(k, storage, tokens, N, steps)
    epilogue = Epilogue(dict(zip(optional, others, strict=True)), output, N)
    of_tile = tile_rows(storage)
    # One token: so many sums that an addition need not wait for the one before it.
    registers = 2 if tokens == 1 else 1
    lanes = min(of_tile, target.lanes() * registers)
    sums: list[Pointer] = [k.scratch(f32, tokens * lanes) for _ in matrices]
    with k.workgroups() as group:
        row_tile, token_tile = group // token_tiles, group % token_tiles
        token, row = token_tile * tokens, row_tile * of_tile
        count = minimum(T - token, tokens)
        with k.range(0, of_tile, lanes) as part:
            if tokens > 1:
                epilogue.expect(k, row + part, token, count)
            for matrix, made in zip(matrices, sums, strict=True):
                product.sum(matrix, row_tile, activations, token_tile, RowPart(part, lanes), made)
            epilogue.store(k, sums, lanes, row + part, token, count)
    return k.finish()
