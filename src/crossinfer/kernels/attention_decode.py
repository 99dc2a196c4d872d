"""rope_attention: rope_kv and the attention of few rows in one kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.attention_shape import (
    CACHES,
    CONSTANTS,
    AttentionShape,
    attention_shape,
    cache_define,
)
from crossinfer.kernels.dispatching import (
    Capabilities,
    MakeKernel,
    dispatch,
    flat_grid,
    power_of_two,
)
from crossinfer.kernels.shader import ShaderKernel, define

_MOST_ROWS = 8
"""More rows had better have separate kernels: those of one sequence see each other's keys."""
_LARGEST_HEAD = 128
_THREADS = 256
_HEADS = (1, 2, 4)
"""Query heads that a group may take at once."""
_PART_TOKENS = 256
_MOST_PARTS = 128
"""As in `hlsl/attention_combine.hlsl`."""
_ONE_PART_TOKENS = 1024
"""Up to so many tokens one group is as fast as parts that another kernel must join."""
# Groups in shares of `Capabilities.fill_groups`, a group being twice as large as those are.
_FEW_GROUPS = 0.2
_USUAL_PARTS = 4
_USUAL_SHARE = 8
"""Most sequences have so many parts with tokens, or one of so many parts of a long table."""
_MANY_GROUPS = 1
_PARTS = "attention parts"
_COMBINE = ShaderKernel(
    f"attention_combine[{_PART_TOKENS}]",
    "attention_combine.hlsl",
    3,
    1,
    CONSTANTS.size,
    group_size=256,
    defines=define(PART_TOKENS=_PART_TOKENS),
)


def decode_shaders() -> Iterator[ShaderKernel]:
    """Every shader that `lower_rope_attention` may choose."""
    for cache, interleaved, heads in itertools.product(CACHES, (False, True), _HEADS):
        yield _shader(cache, interleaved, heads)
    yield _COMBINE


def lower_rope_attention(
    op: RopeAttention, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """In one dispatch for short tables, else in two; none for many rows, or for other heads."""
    D = op.head_dim
    shape = attention_shape(op.attention, operands)
    if D % 4 or D > _LARGEST_HEAD or shape.rows > _MOST_ROWS:
        return ()
    heads, parts = _cut(shape, capabilities)
    shader = _shader(operands["cache"].storage, op.interleaved, heads)
    constants = shape.constants(parts)
    attend = dispatch(
        make_kernel(shader),
        shader,
        reads=("q", "k", "v", "table", "query_start", "kv_len", "block_table"),
        writes=("cache", "output" if parts == 1 else _PARTS),
        updates=("cache",),
        constants=constants,
        grid=flat_grid(shape.rows * shape.kv_heads * ceil_div(shape.sharing, heads) * parts),
    )
    if parts == 1:
        return (Lowering((attend,)),)
    combine = dispatch(
        make_kernel(_COMBINE),
        _COMBINE,
        reads=(_PARTS, "query_start", "kv_len"),
        writes=("output",),
        constants=constants,
        grid=(shape.query_heads, shape.rows, 1),
    )
    size = shape.part_entries(parts) * (D + 2) * DType.F32.block_bytes
    return (Lowering((attend, combine), {_PARTS: size}),)


def _cut(shape: AttentionShape, capabilities: Capabilities) -> tuple[int, int]:
    """(query heads of a group, parts of a row) that give the device enough groups."""
    fill = capabilities.fill_groups
    tokens = min(shape.window, shape.table_blocks * BLOCK_TOKENS)
    most_parts = 1
    if tokens > _ONE_PART_TOKENS:
        most_parts = min(_MOST_PARTS, ceil_div(tokens, _PART_TOKENS))
    groups = shape.rows * shape.kv_heads
    heads = min(max(_HEADS), power_of_two(shape.sharing))
    while heads > 1 and _shared_bytes(heads) > capabilities.shared_bytes:
        heads //= 2
    parts = max(min(most_parts, _USUAL_PARTS), most_parts // _USUAL_SHARE)
    while heads > 1 and groups * ceil_div(shape.sharing, heads) * parts < _FEW_GROUPS * fill:
        heads //= 2
    groups *= ceil_div(shape.sharing, heads)
    return heads, max(1, min(most_parts, int(_MANY_GROUPS * fill) // groups))


def _shared_bytes(heads: int) -> int:
    """Groupshared memory of a kernel."""
    queries = 4 * _LARGEST_HEAD * (heads + _MOST_ROWS)
    return queries + heads * (4 * _THREADS + 32) + 20 * _THREADS + 64


def _shader(cache: StorageType, interleaved: bool, heads: int) -> ShaderKernel:
    return ShaderKernel(
        name=f"rope_attention[{cache.label},{'interleaved' if interleaved else 'halves'},h{heads}]",
        source="rope_attention.hlsl",
        reads=7,
        writes=2,
        constant_bytes=CONSTANTS.size,
        group_size=_THREADS,
        defines=cache_define(cache)
        + define(INTERLEAVED=int(interleaved), HEADS=heads, PART_TOKENS=_PART_TOKENS),
    )
