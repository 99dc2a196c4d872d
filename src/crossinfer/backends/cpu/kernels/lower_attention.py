"""attention on this backend: in one dispatch, or split over the tokens where rows are few."""

from __future__ import annotations

import struct

from crossinfer.backends.cpu.kernels.attention_sizes import (
    LINE_FLOATS,
    NO_WINDOW,
    PART_TOKENS,
    STATE_FLOATS,
    tiled_queries,
)
from crossinfer.backends.cpu.library import KernelLibrary, generator
from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import align_up, ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.attention import Attention
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering
from crossinfer.jit.types import Type, f16, f32

MANY_GROUPS = 64
"""Workgroups that keep any number of workers busy; more rows in each is better then."""
STORED: dict[DType, Type] = {DType.F16: f16, DType.F32: f32}
_build_attention = generator("attention", "build_attention")
_build_part = generator("attention_part", "build_attention_part")
_build_merge = generator("attention_part", "build_attention_merge")
_READ = ("q", "cache", "query_start", "kv_len", "block_table")


def lower_attention(op: Attention, operands: Operands, kernels: KernelLibrary) -> Lowering:
    cache, D = operands["cache"], op.head_dim
    assert isinstance(cache.storage, DType)
    stored, label = STORED[cache.storage], f"{cache.storage.label}_{D}"
    rows, width = operands["q"].shape
    query_heads, kv_heads = width // D, cache.shape[2]
    S, B = operands["block_table"].shape
    window = NO_WINDOW if op.window is None else op.window
    parts = ceil_div(B * BLOCK_TOKENS, PART_TOKENS)
    is_split = parts > 1 and rows * kv_heads < MANY_GROUPS
    # Rows of a workgroup, or workgroups that divide the pieces of a row among themselves.
    cut = min(8, ceil_div(rows * kv_heads, MANY_GROUPS))
    if is_split:
        cut = min(parts * kv_heads, ceil_div(MANY_GROUPS, rows))
    constants = struct.pack("<7if", rows, query_heads, kv_heads, S, B, window, cut, op.scale)
    size = DType.F32.bytes_for(operands["q"].shape)
    name = f"{op.variant(operands)}.{D}"
    read = tuple(Argument(operand, Access.READ) for operand in _READ)
    output = Argument("output", Access.WRITE)
    if not is_split:
        symbol = f"attention_{label}"
        kernel = kernels.get(name, symbol, lambda t: _build_attention(t, symbol, stored, D))
        arguments = (*read, Argument("made", Access.WRITE), output)
        groups = ceil_div(rows, cut) * kv_heads
        return Lowering(
            (LoweredDispatch(kernel, arguments, constants, (groups, 1, 1)),), {"made": size}
        )
    shared = query_heads // kv_heads
    part, merge = f"attention_part_{label}_{shared}", f"attention_merge_{D}"
    part_kernel = kernels.get(
        f"{name}.part.{shared}", part, lambda t: _build_part(t, part, stored, D, shared)
    )
    merge_kernel = kernels.get(f"attention.merge.{D}", merge, lambda t: _build_merge(t, merge, D))
    between = ("made", "stats")
    states = rows * kv_heads * tiled_queries(shared, kernels.target)
    stats = align_up(parts * rows * query_heads * 2, LINE_FLOATS) + parts * states * STATE_FLOATS
    return Lowering(
        (
            LoweredDispatch(
                part_kernel,
                (*read, *(Argument(n, Access.WRITE) for n in between), output),
                constants,
                (rows * cut, 1, 1),
            ),
            LoweredDispatch(
                merge_kernel,
                (
                    *(Argument(n, Access.READ) for n in ("query_start", "kv_len", *between)),
                    Argument("output", Access.READ_WRITE),
                ),
                struct.pack("<5i", rows, query_heads, kv_heads, S, window),
                (kv_heads * rows, 1, 1),
            ),
        ),
        {"made": parts * size, "stats": DType.F32.bytes_for((stats,))},
    )
