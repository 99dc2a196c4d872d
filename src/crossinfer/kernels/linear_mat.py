"""linear for many rows of x: the tiles of a matrix-matrix product."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.linear_shared import is_odd, linear_shader, lower_to
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.kernels.weights import SCALARS, STORAGES


@dataclasses.dataclass(frozen=True)
class _Tile:
    """The tile of a linear_mat kernel, and the part of it that a thread computes."""

    tokens: int
    outputs: int
    part_tokens: int
    part_outputs: int


_TILES = (_Tile(32, 128, 4, 4), _Tile(64, 128, 8, 4))
_LARGE_TILE_TOKENS = 33
"""Tokens from which the large tile is better."""


def mat_shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_mat` may choose."""
    for storage in STORAGES:
        for odd in (False, True) if storage in SCALARS else (False,):
            for tile in _TILES:
                yield _shader(storage, tile, odd)


def lower_mat(
    operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """linear by tiles, the best of them first. All shapes and storages have a way."""
    del capabilities
    tiles = _TILES[::-1] if operands["x"].shape[0] >= _LARGE_TILE_TOKENS else _TILES
    return [_lower(operands, tile, make_kernel) for tile in tiles]


def _lower(operands: Operands, tile: _Tile, make_kernel: MakeKernel) -> Lowering:
    T, K = operands["x"].shape
    N, storage = operands["weight"].shape[0], operands["weight"].storage
    grid = (ceil_div(N, tile.outputs), ceil_div(T, tile.tokens), 1)
    return lower_to(_shader(storage, tile, is_odd(K, storage)), operands, 0, grid, make_kernel)


def _shader(storage: StorageType, tile: _Tile, odd: bool) -> ShaderKernel:
    return linear_shader(
        "linear_mat",
        storage,
        f"{tile.tokens}x{tile.outputs}",
        odd,
        tile.tokens // tile.part_tokens * (tile.outputs // tile.part_outputs),
        TILE_T=tile.tokens,
        TILE_N=tile.outputs,
        PART_T=tile.part_tokens,
        PART_N=tile.part_outputs,
    )
