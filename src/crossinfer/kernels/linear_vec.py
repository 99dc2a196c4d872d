"""linear_vec: products of few rows, and how they are cut among lanes, teams and groups."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import LoweredDispatch
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
    piece_columns,
    row_chunks,
    row_vectors,
    unit_columns,
    weight_defines,
)

MOST_VEC_TOKENS = 16
"""Rows of x up to which linear_vec is better, though it reads weights again for every 8 of them."""

_THREADS = 128
_ROWS = {1: (2, 4), 2: (4,), 4: (4,), 8: (2,)}
"""Tokens of a kernel to the rows that a team may have: no more sums than registers hold."""
_GATED_ROWS = {1: (2, 4), 2: (2,), 4: (2,), 8: (1,)}
"""As above, of kernels with two weights."""
_DEPTHS = {2: 2, 4: 1, 8: 1}
"""Products of a team for one row of x to the pieces that a lane loads at once."""
_DOT_ROWS = 4
"""Rows of a team that takes integer dot products, with one weight or two."""
_CONSTANTS = struct.Struct("<8If")
# As in `hlsl/linear_vec.hlsl`.
_TILE_COLUMNS = {2: 1024, 4: 512, 8: 256}
# Groups of a dispatch in shares of `Capabilities.fill_groups`, measured on an H200: as many rows a
# team as leave the first share to teams of all lanes, then as few lanes as give the second. Blocks
# take more instructions than scalars, and are better with more to switch between.
_LEAST_GROUPS = 1.5
_ENOUGH_GROUPS_OF_SCALARS = 0.85
_ENOUGH_GROUPS_OF_BLOCKS = 16
_LEAST_LANES = 16
_SMALL_DEVICE_GROUPS = 32
"""Fewer fill a software driver, which compiles long loops for seconds and gains nothing by them."""
_NORM, _BIAS, _UP_BIAS, _GATE, _RESIDUAL = 1, 2, 4, 4, 8


def vec_shaders() -> Iterator[ShaderKernel]:
    """Every shader that the lowerings here may choose."""
    for storage, gated in itertools.product(STORAGES, (False, True)):
        for odd in (False, True) if storage in SCALARS else (False,):
            for tokens, choices in (_GATED_ROWS if gated else _ROWS).items():
                # Odd rows are rare: they have the smallest kernel only.
                for rows in choices[:1] if odd else choices:
                    yield _shader(storage, tokens, rows, odd, gated)
        if storage not in SCALARS:
            yield _dot_shader(storage, gated)


def lower_vec(
    operands: Operands,
    capabilities: Capabilities,
    make_kernel: MakeKernel,
    *,
    weight: str = "weight",
    bias: str = "bias",
    gate: str = "gate",
    output: str = "output",
    eps: float | None = None,
    integer: bool = False,
) -> LoweredDispatch:
    """One product, whose operands have these names; gate, bias, residual and norm_weight count
    where they are among the operands. `output` may be scratch memory. `integer`: by dot products of
    bytes, where `takes_dots` says so.
    """
    given = {weight, bias, gate, "residual", "norm_weight"} & operands.keys()

    def name_of(operand: str) -> str:
        return operand if operand in given else "x"

    follows = sum(
        bit
        for bit, name in (
            (_NORM, "norm_weight"),
            (_BIAS, bias),
            (_GATE, gate),
            (_RESIDUAL, "residual"),
        )
        if name in given
    )
    names = ("norm_weight", weight, bias, gate, "residual")
    reads = ("x", *(name_of(name) for name in names), *_bytes_of(operands, weight))
    return _lower(
        operands, weight, False, reads, output, follows, eps, capabilities, make_kernel, integer
    )


def lower_gated_vec(
    operands: Operands,
    eps: float | None,
    capabilities: Capabilities,
    make_kernel: MakeKernel,
    integer: bool = False,
) -> LoweredDispatch:
    """gated_linear whose weights have one storage type; `integer` as in `lower_vec`."""
    optional = (("norm_weight", _NORM), ("gate_bias", _BIAS), ("up_bias", _UP_BIAS))
    follows = sum(bit for name, bit in optional if name in operands)
    norm, bias, up_bias = (name if name in operands else "x" for name, _ in optional)
    bytes_of = _bytes_of(operands, "gate_weight", "up_weight")
    reads = ("x", norm, "gate_weight", bias, "up_weight", up_bias, *bytes_of)
    return _lower(
        operands,
        "gate_weight",
        True,
        reads,
        "output",
        follows,
        eps,
        capabilities,
        make_kernel,
        integer,
    )


def takes_dots(operands: Operands, weights: Sequence[str], capabilities: Capabilities) -> bool:
    """Whether products with these weights can be sums of integer dot products: one row of x."""
    return (
        capabilities.integer_dots
        and operands["x"].shape[0] == 1
        and not any(operands[weight].storage in SCALARS for weight in weights)
    )


def _bytes_of(operands: Operands, *weights: str) -> tuple[str, ...]:
    """The weights whose shader has a second view of each."""
    return () if operands[weights[0]].storage in SCALARS else weights


def _lower(
    operands: Operands,
    weight: str,
    gated: bool,
    reads: Sequence[str],
    output: str,
    follows: int,
    eps: float | None,
    capabilities: Capabilities,
    make_kernel: MakeKernel,
    integer: bool,
) -> LoweredDispatch:
    T, K = operands["x"].shape
    N, storage = operands[weight].shape[0], operands[weight].storage
    tokens = min(power_of_two(T), max(_ROWS))
    choices = (_DOT_ROWS,) if integer else (_GATED_ROWS if gated else _ROWS)[tokens]
    rows, lanes = _cut(N, K, storage, tokens, choices, capabilities)
    if integer:
        shader = _dot_shader(storage, gated)
    else:
        shader = _shader(storage, tokens, rows, K % unit_columns(storage) != 0, gated)
    x, y, _ = flat_grid(ceil_div(N, rows * (_THREADS // lanes)))
    return dispatch(
        make_kernel(shader),
        shader,
        reads=reads,
        writes=(output,),
        constants=_CONSTANTS.pack(
            T,
            N,
            K,
            row_chunks(K, storage),
            row_vectors(K, storage),
            lanes,
            follows,
            operands[output].shape[1] if output in operands else N,
            eps or 0.0,
        ),
        grid=(x, y, ceil_div(T, tokens)),
    )


def _cut(
    N: int,
    K: int,
    storage: StorageType,
    tokens: int,
    choices: Sequence[int],
    capabilities: Capabilities,
) -> tuple[int, int]:
    """(rows, lanes) of a team; `choices` are the rows that it may have.

    More rows use what is loaded of x more often, fewer lanes give each more to do. But all groups
    should run at once and keep every processor busy; a group costs the same, however small.
    """
    fill = capabilities.fill_groups
    pieces = (
        ceil_div(K, piece_columns(storage))
        if tokens == 1
        else ceil_div(min(K, _TILE_COLUMNS[tokens]), unit_columns(storage))
    )
    most = min(_THREADS, power_of_two(pieces))
    if fill < _SMALL_DEVICE_GROUPS or K % unit_columns(storage):
        choices = choices[:1]

    def groups(rows: int, lanes: int) -> float:
        return N * lanes / (rows * _THREADS)

    fitting = [rows for rows in choices if groups(rows, most) >= _LEAST_GROUPS * fill]
    rows = max(fitting, default=choices[0])
    lanes = min(most, _LEAST_LANES)
    share = _ENOUGH_GROUPS_OF_SCALARS if storage in SCALARS else _ENOUGH_GROUPS_OF_BLOCKS
    while lanes < most and groups(rows, lanes) < share * fill:
        lanes *= 2
    return rows, lanes


def _shader(storage: StorageType, tokens: int, rows: int, odd: bool, gated: bool) -> ShaderKernel:
    sizes = define(ODD_COLUMNS=int(odd), TOKENS=tokens, ROWS=rows, GATED=int(gated))
    if tokens == 1:
        sizes += define(DEPTH=_DEPTHS[rows * (1 + gated)])
    variant = f"{storage.label},t{tokens},r{rows}{',odd' if odd else ''}"
    return _described(variant, storage, gated, sizes, integer_dots=False)


def _dot_shader(storage: StorageType, gated: bool) -> ShaderKernel:
    sizes = define(ODD_COLUMNS=0, TOKENS=1, ROWS=_DOT_ROWS, GATED=int(gated), INTEGER_DOTS=1)
    return _described(f"{storage.label},t1,dot", storage, gated, sizes, integer_dots=True)


def _described(
    variant: str,
    storage: StorageType,
    gated: bool,
    sizes: tuple[tuple[str, str], ...],
    *,
    integer_dots: bool,
) -> ShaderKernel:
    return ShaderKernel(
        name=f"{'gated_vec' if gated else 'linear_vec'}[{variant}]",
        source="linear_vec.hlsl",
        reads=6 if storage in SCALARS else 7 + gated,
        writes=1,
        constant_bytes=_CONSTANTS.size,
        group_size=_THREADS,
        defines=weight_defines(storage) + sizes,
        integer_dots=integer_dots,
    )
