"""linear: which of its kernels a product takes, and how it is cut among lanes, teams and groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.dispatching import Capabilities, MakeKernel, flat_grid, power_of_two
from crossinfer.kernels.linear_mat import lower_mat, mat_shaders
from crossinfer.kernels.linear_shared import is_odd, linear_shader, lower_to
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.kernels.weights import SCALARS, STORAGES, unit_columns

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


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_linear` may choose."""
    for storage in STORAGES:
        for odd in (False, True) if storage in SCALARS else (False,):
            for tokens, rows in _VEC_ROWS.items():
                yield _vec_shader(storage, tokens, rows, odd)
    yield from mat_shaders()


def lower_linear(
    operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """The ways to run linear, best first."""
    T = operands["x"].shape[0]
    lowerings = lower_mat(operands, capabilities, make_kernel)
    if T <= _MOST_VEC_TOKENS:
        return (_vec(operands, capabilities, make_kernel), *lowerings)
    return lowerings


def _vec(operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel) -> Lowering:
    T, K = operands["x"].shape
    N, storage = operands["weight"].shape[0], operands["weight"].storage
    tokens = min(power_of_two(T), max(_VEC_ROWS))
    rows = _VEC_ROWS[tokens]
    lanes = _lanes(N, K, storage, tokens, rows, capabilities)
    shader = _vec_shader(storage, tokens, rows, is_odd(K, storage))
    x, y, _ = flat_grid(ceil_div(N, rows * (_VEC_THREADS // lanes)))
    return lower_to(shader, operands, lanes, (x, y, ceil_div(T, tokens)), make_kernel)


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


def _vec_shader(storage: StorageType, tokens: int, rows: int, odd: bool) -> ShaderKernel:
    return linear_shader(
        "linear_vec", storage, f"t{tokens}", odd, _VEC_THREADS, TOKENS=tokens, ROWS=rows
    )
