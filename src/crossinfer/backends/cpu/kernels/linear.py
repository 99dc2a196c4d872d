"""linear on this backend: which kernels, how many tokens at once, and their constants.

Two dispatches: activations into tiles of tokens, then products with tiles of the weight. One token
and scalar weights need no first one.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence

from crossinfer.backends.cpu.kernels.activations import (
    QUANTIZED,
    build_arrange,
    build_quantize,
    preparation_grid,
)
from crossinfer.backends.cpu.kernels.epilogue import OPTIONAL
from crossinfer.backends.cpu.kernels.layout import CHUNK_COLUMNS, tile_count
from crossinfer.backends.cpu.kernels.linear_blocks import activation_tile, build_linear_blocks
from crossinfer.backends.cpu.kernels.linear_scalars import build_linear_scalars
from crossinfer.backends.cpu.library import KernelLibrary
from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import BlockFormat
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering, Operand
from crossinfer.jit.target import Target

_ACTIVATIONS = "activations"
"""The scratch memory between the two dispatches."""


def lower_linear(
    op: Linear, operands: Mapping[str, Operand], kernels: KernelLibrary
) -> Sequence[Lowering]:
    """The one way to run it; none if no weight has such a storage."""
    storage = operands["weight"].storage
    tokens = tokens_at_once(operands["x"].shape[0], kernels.target)
    if storage is DType.I32:
        return ()
    if isinstance(storage, BlockFormat):
        return (_lower_blocks(op, operands, storage, tokens, kernels),)
    return (_lower_scalars(op, operands, tokens, kernels),)


def tokens_at_once(rows: int, target: Target) -> int:
    """Tokens of a tile: a power of two, as many as the registers hold the sums of."""
    most = 16 if target.vector_bits == 512 else 4
    tokens = 1
    while tokens < min(rows, most):
        tokens *= 2
    return tokens


def _lower_blocks(
    op: Linear,
    operands: Mapping[str, Operand],
    storage: BlockFormat,
    tokens: int,
    kernels: KernelLibrary,
) -> Lowering:
    rows, columns = operands["x"].shape
    tile = activation_tile(storage, tokens)
    sums = f"sums{tile.groups}" if tile.has_offsets else f"zero{tile.zero}x{tile.groups}"
    build = functools.partial(build_quantize, tile=tile)
    quantize = _preparation(f"quantize_{sums}_{tokens}", build, operands["x"], tokens, kernels)
    product = _product(op, operands, tokens, columns // storage.block_elements, kernels)
    size = ceil_div(rows, tokens) * (columns // CHUNK_COLUMNS) * tile.size_in_bytes
    return Lowering((quantize, product), {_ACTIVATIONS: size}, {"x": QUANTIZED})


def _lower_scalars(
    op: Linear, operands: Mapping[str, Operand], tokens: int, kernels: KernelLibrary
) -> Lowering:
    rows, columns = operands["x"].shape
    product = _product(op, operands, tokens, columns, kernels)
    if tokens == 1:
        return Lowering((product,))
    build = functools.partial(build_arrange, tokens=tokens)
    arrange = _preparation(f"arrange_{tokens}", build, operands["x"], tokens, kernels)
    size = ceil_div(rows, tokens) * tokens * columns * DType.F32.block_bytes
    return Lowering((arrange, product), {_ACTIVATIONS: size})


def _preparation(
    symbol: str,
    build: Callable[[str, Target], str],
    x: Operand,
    tokens: int,
    kernels: KernelLibrary,
) -> LoweredDispatch:
    """The first dispatch: x into tiles of tokens."""
    grid = preparation_grid(x.shape[0], x.shape[1], tokens)
    return LoweredDispatch(
        kernels.get(symbol.replace("_", "."), symbol, functools.partial(build, symbol)),
        (Argument("x", Access.READ), Argument(_ACTIVATIONS, Access.WRITE)),
        struct.pack("<3i", *x.shape, grid[0]),
        grid,
    )


def _product(
    op: Linear, operands: Mapping[str, Operand], tokens: int, steps: int, kernels: KernelLibrary
) -> LoweredDispatch:
    """The product itself; `steps` is what its kernel counts along a row."""
    storage = operands["weight"].storage
    optional = tuple(name for name in OPTIONAL if name in operands)
    symbol = "_".join(("linear", storage.label, *optional, str(tokens)))
    if isinstance(storage, BlockFormat):
        build = functools.partial(build_linear_blocks, symbol, storage=storage)
    else:
        build = functools.partial(build_linear_scalars, symbol, storage=storage)
    T, N = operands["output"].shape
    token_tiles = ceil_div(T, tokens)
    scratch = tokens > 1 or isinstance(storage, BlockFormat)
    inputs = (_ACTIVATIONS if scratch else "x", "weight", *optional)
    return LoweredDispatch(
        kernels.get(
            f"{op.variant(operands)}.{'.'.join((*optional, str(tokens)))}",
            symbol,
            functools.partial(build, tokens=tokens, optional=optional),
        ),
        (*(Argument(name, Access.READ) for name in inputs), Argument("output", Access.WRITE)),
        struct.pack("<4i", T, N, steps, token_tiles),
        (token_tiles, tile_count(N), 1),
    )
