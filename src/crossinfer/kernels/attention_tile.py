"""attention for many rows of a sequence: tiles of rows with a running softmax."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.attention_shape import (
    CACHES,
    CONSTANTS,
    AttentionShape,
    cache_define,
)
from crossinfer.kernels.dispatching import MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel, define

TILE_SHARED_BYTES = 1 << 15
"""Groupshared memory that attention_tile takes at most."""
_TILE_ROWS = 64
"""As in `hlsl/attention_tile.hlsl`."""


@dataclasses.dataclass(frozen=True)
class _Scores:
    """The scores that a thread computes."""

    rows: int
    tokens: int


_LARGEST_HEADS = {64: _Scores(8, 8), 128: _Scores(8, 4), 256: _Scores(4, 4)}
"""The largest head_dim of a kernel, which is also its threads, to the scores of a thread."""


def tile_shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_tile` may choose."""
    for cache in CACHES:
        yield from (_shader(cache, largest) for largest in _LARGEST_HEADS)


def tile_groups(shape: AttentionShape) -> tuple[int, int]:
    """The most tiles that the sequences can have, and the KV heads."""
    rows, sharing = shape.rows, shape.sharing
    # Each sequence may have one short tile, and no tile is without a row.
    tiles = (rows * sharing + shape.sequences * (_TILE_ROWS - 1)) // _TILE_ROWS
    return min(tiles, rows * ceil_div(sharing, _TILE_ROWS)), shape.kv_heads


def lower_tile(shape: AttentionShape, cache: StorageType, make_kernel: MakeKernel) -> Lowering:
    """attention by tiles of rows, for devices with TILE_SHARED_BYTES of groupshared memory."""
    largest = next(size for size in _LARGEST_HEADS if shape.head_dim <= size)
    shader = _shader(cache, largest)
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=("q", "cache", "query_start", "kv_len", "block_table"),
        writes=("output",),
        constants=shape.constants(1),
        grid=(*tile_groups(shape), 1),
    )
    return Lowering((run,))


def _shader(cache: StorageType, largest: int) -> ShaderKernel:
    scores = _LARGEST_HEADS[largest]
    return ShaderKernel(
        name=f"attention_tile[{cache.label},d{largest}]",
        source="attention_tile.hlsl",
        reads=5,
        writes=1,
        constant_bytes=CONSTANTS.size,
        group_size=largest,
        defines=cache_define(cache)
        + define(LARGEST_HEAD=largest, SCORE_ROWS=scores.rows, SCORE_TOKENS=scores.tokens),
        shared_bytes=TILE_SHARED_BYTES,
    )
