"""linear: which of its kernels a product takes, and how it is cut among lanes, teams and groups."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import Grid, Lowering
from crossinfer.kernels.dispatching import (
    Capabilities,
    MakeKernel,
    dispatch,
    flat_grid,
    power_of_two,
)
from crossinfer.kernels.shader import ShaderKernel, define
from crossinfer.kernels.weights import (
    SCALARS,
    STORAGES,
    row_chunks,
    row_vectors,
    unit_columns,
    weight_defines,
)

_CONSTANTS = struct.Struct("<7I")
_OPTIONAL = ("bias", "gate", "residual")
"""In the order of their bits in `hlsl/input.hlsli`."""

_VEC_THREADS = 128
_VEC_ROWS = {1: 4, 2: 4, 4: 4, 8: 2}
"""Tokens of a linear_vec kernel to the rows of a team: as many as registers hold sums."""
_MOST_VEC_TOKENS = 16
"""Rows of x up to which linear_vec is better, though it reads weights again for every 8 of them."""
_VEC_TILE = 2048
"""Elements of x that linear_vec keeps at once."""
# The share of `Capabilities.fill_groups` from which more groups stop to pay. Measured on an H200: a
# team of blocks has more to compute, and less to wait for.
_ENOUGH_GROUPS_OF_SCALARS = 0.8
_ENOUGH_GROUPS_OF_BLOCKS = 0.4


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


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_linear` may choose."""
    for storage in STORAGES:
        for odd in (False, True) if storage in SCALARS else (False,):
            for tokens, rows in _VEC_ROWS.items():
                yield _vec_shader(storage, tokens, rows, odd)
            for tile in _TILES:
                yield _mat_shader(storage, tile, odd)


def lower_linear(
    operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """The ways to run linear, best first."""
    T = operands["x"].shape[0]
    tiles = _TILES[::-1] if T >= _LARGE_TILE_TOKENS else _TILES
    lowerings = [_mat(operands, tile, make_kernel) for tile in tiles]
    if T <= _MOST_VEC_TOKENS:
        lowerings.insert(0, _vec(operands, capabilities, make_kernel))
    return lowerings


def _vec(operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel) -> Lowering:
    T, K = operands["x"].shape
    N, storage = operands["weight"].shape[0], operands["weight"].storage
    tokens = min(power_of_two(T), max(_VEC_ROWS))
    rows = _VEC_ROWS[tokens]
    lanes = _lanes(N, K, storage, tokens, rows, capabilities)
    shader = _vec_shader(storage, tokens, rows, _is_odd(K, storage))
    x, y, _ = flat_grid(ceil_div(N, rows * (_VEC_THREADS // lanes)))
    return _lowering(operands, shader, lanes, (x, y, ceil_div(T, tokens)), make_kernel)


def _lanes(
    N: int, K: int, storage: StorageType, tokens: int, rows: int, capabilities: Capabilities
) -> int:
    """Lanes of a team: as few as still give the device enough groups.

    Adding up costs a team the same, whatever it has to add. A lane has at least one unit of each
    tile of x.
    """
    share = _ENOUGH_GROUPS_OF_SCALARS if storage in SCALARS else _ENOUGH_GROUPS_OF_BLOCKS
    enough = share * capabilities.fill_groups
    units = ceil_div(min(K, _VEC_TILE // tokens), unit_columns(storage))
    most = min(_VEC_THREADS, power_of_two(units))
    lanes = min(most, 16, 64 // tokens)
    while lanes < most and N * lanes < enough * rows * _VEC_THREADS:
        lanes *= 2
    return lanes


def _mat(operands: Operands, tile: _Tile, make_kernel: MakeKernel) -> Lowering:
    T, K = operands["x"].shape
    N, storage = operands["weight"].shape[0], operands["weight"].storage
    grid = (ceil_div(N, tile.outputs), ceil_div(T, tile.tokens), 1)
    shader = _mat_shader(storage, tile, _is_odd(K, storage))
    return _lowering(operands, shader, 0, grid, make_kernel)


def _is_odd(K: int, storage: StorageType) -> bool:
    return K % unit_columns(storage) != 0


def _lowering(
    operands: Operands, shader: ShaderKernel, lanes: int, grid: Grid, make_kernel: MakeKernel
) -> Lowering:
    T, K = operands["x"].shape
    weight = operands["weight"]
    follows = sum(1 << bit for bit, name in enumerate(_OPTIONAL) if name in operands)
    constants = _CONSTANTS.pack(
        T,
        weight.shape[0],
        K,
        row_chunks(K, weight.storage),
        row_vectors(K, weight.storage),
        lanes,
        follows,
    )
    reads = ("x", "weight", *(name if name in operands else "x" for name in _OPTIONAL))
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=reads,
        writes=("output",),
        constants=constants,
        grid=grid,
    )
    return Lowering((run,))


def _vec_shader(storage: StorageType, tokens: int, rows: int, odd: bool) -> ShaderKernel:
    return _shader("linear_vec", storage, f"t{tokens}", odd, _VEC_THREADS, TOKENS=tokens, ROWS=rows)


def _mat_shader(storage: StorageType, tile: _Tile, odd: bool) -> ShaderKernel:
    return _shader(
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


def _shader(
    family: str, storage: StorageType, variant: str, odd: bool, threads: int, **values: int
) -> ShaderKernel:
    return ShaderKernel(
        name=f"{family}[{storage.label},{variant}{',odd' if odd else ''}]",
        source=f"{family}.hlsl",
        reads=5,
        writes=1,
        constant_bytes=_CONSTANTS.size,
        group_size=threads,
        defines=weight_defines(storage) + define(ODD_COLUMNS=int(odd), **values),
    )
