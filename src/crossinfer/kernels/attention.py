"""rope_kv and attention: the ops that look into the KV cache."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.attention_decode import decode_shaders
from crossinfer.kernels.attention_shape import (
    CACHES,
    CONSTANTS,
    AttentionShape,
    attention_shape,
    cache_define,
    fitting,
)
from crossinfer.kernels.attention_tile import TILE_SHARED_BYTES, lower_tile, tile_shaders
from crossinfer.kernels.dispatching import (
    Capabilities,
    MakeKernel,
    dispatch,
    flat_grid,
    power_of_two,
)
from crossinfer.kernels.shader import ShaderKernel, define

_ROPE_CONSTANTS = struct.Struct("<5I")
_ROPE_THREADS = 64

_MOST_HEADS = 8
"""Query heads that a group of attention_split takes at once."""
_PART_STEP = 64
"""PART_TOKENS of `hlsl/attention.hlsli`."""
_MOST_PARTS = 128
"""As in `hlsl/attention_combine.hlsl`."""
# Groups of attention_split in shares of `Capabilities.fill_groups`, measured on an H200: with fewer
# than the first, heads had better not share a group; with more than the second, parts cost more
# than they save. (The groups are small, and wait much.)
_FEW_GROUPS = 0.4
_MANY_GROUPS = 4
_LARGEST_HEADS = {128: 1, 256: 2}
"""The largest head_dim of an attention_split kernel to the pairs of a thread."""
_SPLIT_ROWS = 8
"""Up to so many rows attention_split is better, and beyond, where sequences have a row or two."""
_FEW_READERS = 0.8
"""Or where so few groups of it, in shares of `Capabilities.fill_groups`, read the cache."""

_PARTS = "attention parts"
"""Scratch memory between attention_split and attention_combine."""
_COMBINE = ShaderKernel(
    "attention_combine", "attention_combine.hlsl", 3, 1, CONSTANTS.size, group_size=256
)


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that the lowerings here may choose."""
    for cache in CACHES:
        yield from (_rope_shader(cache, interleaved) for interleaved in (False, True))
        for largest, heads in itertools.product(_LARGEST_HEADS, (1, 2, 4, _MOST_HEADS)):
            yield _split_shader(cache, heads, largest)
    yield _COMBINE
    yield from tile_shaders()
    yield from decode_shaders()


def lower_rope_kv(op: RopeKv, operands: Operands, make_kernel: MakeKernel) -> Sequence[Lowering]:
    """rope_kv, if the kernels take this head_dim."""
    D = op.head_dim
    if D % 4:
        return ()
    T = operands["q"].shape[0]
    query_heads, kv_heads = operands["q"].shape[1] // D, operands["k"].shape[1] // D
    S, B = operands["block_table"].shape
    shader = _rope_shader(operands["cache"].storage, op.interleaved)
    items = (query_heads + 2 * kv_heads) * (D // 4)
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=("k", "v", "table", "query_start", "kv_len", "block_table"),
        writes=("q", "cache"),
        updates=("q", "cache"),
        constants=_ROPE_CONSTANTS.pack(query_heads, kv_heads, D, S, B),
        grid=(ceil_div(items, _ROPE_THREADS), T, 1),
    )
    return (Lowering((run,)),)


def lower_attention(
    op: Attention, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """The ways to run attention, best first; none for heads that no kernel takes."""
    head_dim, cache = op.head_dim, operands["cache"]
    if head_dim % 4 or head_dim > max(_LARGEST_HEADS):
        return ()
    shape = attention_shape(op, operands)
    split = _split(shape, cache.storage, capabilities, make_kernel)
    if capabilities.shared_bytes < TILE_SHARED_BYTES:
        return (split,)
    tile = lower_tile(shape, cache.storage, make_kernel)
    return (split, tile) if _prefers_split(shape, capabilities) else (tile, split)


def _prefers_split(shape: AttentionShape, capabilities: Capabilities) -> bool:
    """Tiles read keys and values once for many rows, but few of them take as long as many."""
    readers = shape.rows * shape.kv_heads * ceil_div(shape.sharing, _MOST_HEADS)
    few_rows = shape.rows <= max(_SPLIT_ROWS, 2 * shape.sequences)
    return few_rows or readers < _FEW_READERS * capabilities.fill_groups


def _split(
    shape: AttentionShape, cache: StorageType, capabilities: Capabilities, make_kernel: MakeKernel
) -> Lowering:
    heads, parts = _cut(shape, capabilities)
    shader = _split_shader(cache, heads, fitting(_LARGEST_HEADS, shape.head_dim))
    groups = shape.rows * shape.kv_heads * ceil_div(shape.sharing, heads)
    constants = shape.constants(parts)
    split = dispatch(
        make_kernel(shader),
        shader,
        reads=("q", "cache", "query_start", "kv_len", "block_table"),
        writes=("output" if parts == 1 else _PARTS,),
        constants=constants,
        grid=flat_grid(groups * parts),
    )
    if parts == 1:
        return Lowering((split,))
    combine = dispatch(
        make_kernel(_COMBINE),
        _COMBINE,
        reads=(_PARTS, "query_start", "kv_len"),
        writes=("output",),
        constants=constants,
        grid=(shape.query_heads, shape.rows, 1),
    )
    size = shape.part_entries(parts) * (shape.head_dim + 2) * DType.F32.block_bytes
    return Lowering((split, combine), {_PARTS: size})


def _cut(shape: AttentionShape, capabilities: Capabilities) -> tuple[int, int]:
    """(query heads of a group, parts of a row) that give the device enough groups.

    Parts come first: heads that share a group read keys and values once.
    """
    fill = capabilities.fill_groups
    most_tokens = min(shape.window, shape.table_blocks * BLOCK_TOKENS)
    most_parts = min(_MOST_PARTS, ceil_div(most_tokens, _PART_STEP))
    groups = shape.rows * shape.kv_heads
    heads = min(_MOST_HEADS, power_of_two(shape.sharing))
    while heads > 1 and groups * ceil_div(shape.sharing, heads) * most_parts < _FEW_GROUPS * fill:
        heads //= 2
    groups *= ceil_div(shape.sharing, heads)
    return heads, max(1, min(most_parts, _MANY_GROUPS * fill // groups))


def _rope_shader(cache: StorageType, interleaved: bool) -> ShaderKernel:
    return ShaderKernel(
        name=f"rope_kv[{cache.label},{'interleaved' if interleaved else 'halves'}]",
        source="rope_kv.hlsl",
        reads=6,
        writes=2,
        constant_bytes=_ROPE_CONSTANTS.size,
        group_size=_ROPE_THREADS,
        defines=cache_define(cache) + define(INTERLEAVED=int(interleaved)),
    )


def _split_shader(cache: StorageType, heads: int, largest: int) -> ShaderKernel:
    return ShaderKernel(
        name=f"attention_split[{cache.label},h{heads},d{largest}]",
        source="attention_split.hlsl",
        reads=5,
        writes=1,
        constant_bytes=CONSTANTS.size,
        group_size=64,
        defines=cache_define(cache) + define(HEADS=heads, PAIRS=_LARGEST_HEADS[largest]),
    )
