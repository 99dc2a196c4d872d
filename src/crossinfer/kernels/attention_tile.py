"""attention for many rows of a sequence: tiles of rows with a running softmax."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.formats.blocks import StorageType
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.attention_shape import (
    CACHES,
    CONSTANTS,
    AttentionShape,
    cache_define,
    fitting,
)
from crossinfer.kernels.dispatching import MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel, define

_TILE_ROWS = {128: 16, 256: 8}
"""The largest head_dim of an attention_tile kernel to its rows."""


def tile_shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_tile` may choose."""
    for cache in CACHES:
        yield from (_shader(cache, largest) for largest in _TILE_ROWS)


def lower_tile(shape: AttentionShape, cache: StorageType, make_kernel: MakeKernel) -> Lowering:
    """attention by tiles of rows."""
    largest = fitting(_TILE_ROWS, shape.head_dim)
    rows = _TILE_ROWS[largest]
    shader = _shader(cache, largest)
    # Each sequence may have one short tile, and no tile is without a row.
    tiles = min(shape.rows, (shape.rows + shape.sequences * (rows - 1)) // rows)
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=("q", "cache", "query_start", "kv_len", "block_table"),
        writes=("output",),
        constants=shape.constants(1),
        grid=(tiles, shape.query_heads, 1),
    )
    return Lowering((run,))


def _shader(cache: StorageType, largest: int) -> ShaderKernel:
    rows = _TILE_ROWS[largest]
    return ShaderKernel(
        name=f"attention_tile[{cache.label},d{largest}]",
        source="attention_tile.hlsl",
        reads=5,
        writes=1,
        constant_bytes=CONSTANTS.size,
        group_size=16 * rows,
        defines=cache_define(cache) + define(ROWS=rows, LARGEST_HEAD=largest),
    )
