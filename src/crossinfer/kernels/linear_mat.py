"""linear for many rows of x: tiles of a matrix-matrix product, and how K is cut among groups."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import align_up, ceil_div
from crossinfer.formats.blocks import BlockFormat, StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import LoweredDispatch, Lowering
from crossinfer.kernels.dispatching import Capabilities, MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel, define
from crossinfer.kernels.weights import STORAGES, row_chunks, row_vectors, weight_defines

_CONSTANTS = struct.Struct("<9I")
_OPTIONAL = ("bias", "gate", "residual")
"""In the order of their bits in `hlsl/linear_finish.hlsli`."""
_PARTS = "linear parts"
"""Scratch memory between linear_mat and linear_sum."""
_PIECE_COLUMNS = 8
"""As in `hlsl/mat_piece.hlsli`."""
_STEP_COLUMNS = 16
"""As in `hlsl/linear_mat.hlsl`."""
_VECTOR = 4
"""Columns that linear_mat stores at once."""
_SUM_COLUMNS = 1024
"""Columns that a group of linear_sum takes."""


@dataclasses.dataclass(frozen=True)
class _Tile:
    """The tile of a linear_mat kernel, and the part of it that a thread computes."""

    tokens: int
    outputs: int
    part_tokens: int
    part_outputs: int
    in_large: int
    """Groups that keep a processor as busy as one of the large tile."""

    @property
    def threads(self) -> int:
        return self.tokens // self.part_tokens * (self.outputs // self.part_outputs)

    def count(self, T: int, N: int) -> int:
        """The tiles of an output."""
        return ceil_div(T, self.tokens) * ceil_div(N, self.outputs)


_SMALL = _Tile(32, 128, 8, 8, in_large=2)
_LARGE = _Tile(64, 128, 8, 8, in_large=1)

# What a product costs, in steps of a large tile on a processor that has three of them to alternate
# between. All measured on an H200.
_ROUND = 3
_LAST_ROUND_STEPS = (0.0, 1.54, 2.08)
"""What a step costs with so many tiles for a processor, fewer than a whole round."""
_START_STEPS = 5
_STORE_PART_STEPS = 3
_SUM_STEPS = 6
_GROUPS_OF_PROCESSOR = 4
"""`Capabilities.fill_groups` of one processor."""
_MOST_SPLITS = 16
_MOST_PART_BYTES = 1 << 26
"""Scratch memory that a product may take."""

_SUM = ShaderKernel("linear_sum", "linear_sum.hlsl", 4, 1, _CONSTANTS.size, group_size=256)


def mat_shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_mat` may choose."""
    for storage in STORAGES:
        for odd in (False,) if isinstance(storage, BlockFormat) else (False, True):
            for tile in (_SMALL, _LARGE):
                yield _shader(storage, tile, odd)
    yield _SUM


def lower_mat(
    operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """linear by tiles, the better of them first. All shapes and storages have a way.

    The weight may be a range of the rows that the output has columns.
    """
    tiles = (_SMALL, _LARGE) if operands["x"].shape[0] <= _SMALL.tokens else (_LARGE, _SMALL)
    return [_lower(operands, tile, capabilities, make_kernel) for tile in tiles]


def _lower(
    operands: Operands, tile: _Tile, capabilities: Capabilities, make_kernel: MakeKernel
) -> Lowering:
    T, K = operands["x"].shape
    weight = operands["weight"]
    N = weight.shape[0]
    steps = ceil_div(K, _STEP_COLUMNS)
    split_steps = ceil_div(steps, _splits(T, N, steps, tile, capabilities))
    splits = ceil_div(steps, split_steps)

    def constants(follows: int, output_stride: int) -> bytes:
        return _CONSTANTS.pack(
            T,
            N,
            K,
            row_chunks(K, weight.storage),
            row_vectors(K, weight.storage),
            splits,
            split_steps,
            follows,
            output_stride,
        )

    def tiles(follows: Sequence[str], output: str, constants: bytes) -> LoweredDispatch:
        shader = _shader(weight.storage, tile, K % _PIECE_COLUMNS != 0)
        return dispatch(
            make_kernel(shader),
            shader,
            reads=(*follows, "x", "weight"),
            writes=(output,),
            constants=constants,
            grid=(ceil_div(T, tile.tokens), ceil_div(N, tile.outputs), splits),
        )

    follows = [name if name in operands else "x" for name in _OPTIONAL]
    bits = sum(1 << bit for bit, name in enumerate(_OPTIONAL) if name in operands)
    stride = operands["output"].shape[1]
    if splits == 1 and N % _VECTOR == 0 and stride % _VECTOR == 0:
        return Lowering((tiles(follows, "output", constants(bits, stride)),))
    add_up = dispatch(
        make_kernel(_SUM),
        _SUM,
        reads=(*follows, _PARTS),
        writes=("output",),
        constants=constants(bits, stride),
        grid=(ceil_div(N, _SUM_COLUMNS), T, 1),
    )
    parts = tiles(["x"] * len(follows), _PARTS, constants(0, align_up(N, _VECTOR)))
    return Lowering((parts, add_up), {_PARTS: _part_bytes(T, N) * splits})


def _splits(T: int, N: int, steps: int, tile: _Tile, capabilities: Capabilities) -> int:
    """Parts of K with which the product takes the least time."""
    processors = max(1, capabilities.fill_groups // _GROUPS_OF_PROCESSOR)
    tiles = tile.count(T, N)
    most = min(_MOST_SPLITS, steps, _MOST_PART_BYTES // _part_bytes(T, N))

    def cost(splits: int) -> float:
        rounds, rest = divmod(ceil_div(tiles * splits, processors * tile.in_large), _ROUND)
        of_step = rounds * _ROUND + _LAST_ROUND_STEPS[rest]
        if splits == 1:
            return of_step * (steps + _START_STEPS)
        part_steps = ceil_div(steps, splits) + _START_STEPS + _STORE_PART_STEPS
        return of_step * part_steps + _SUM_STEPS

    return min(range(1, max(1, most) + 1), key=cost)


def _part_bytes(T: int, N: int) -> int:
    return DType.F32.bytes_for((T, align_up(N, _VECTOR)))


def _shader(storage: StorageType, tile: _Tile, odd: bool) -> ShaderKernel:
    return ShaderKernel(
        name=f"linear_mat[{storage.label},{tile.tokens}x{tile.outputs}{',odd' if odd else ''}]",
        source="linear_mat.hlsl",
        reads=5,
        writes=1,
        constant_bytes=_CONSTANTS.size,
        group_size=tile.threads,
        defines=weight_defines(storage)
        + define(
            PIECE_WORDS=_piece_words(storage),
            ODD_COLUMNS=int(odd),
            TILE_T=tile.tokens,
            TILE_N=tile.outputs,
            PART_T=tile.part_tokens,
            PART_N=tile.part_outputs,
        ),
    )


def _piece_words(storage: StorageType) -> int:
    """Words that hold the codes or scalars of a piece: of each plane at least one."""
    if isinstance(storage, BlockFormat):
        return sum(min(2, bits) for bits in (8, 4, 2, 1) if storage.bits & bits)
    return _PIECE_COLUMNS * storage.block_bytes // 4
