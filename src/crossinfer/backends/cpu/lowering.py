"""What each op becomes on a CPU: a kernel, its constants, and the grid.

Workgroups are sized to take some microseconds each, so that any number of workers stays busy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from crossinfer.backends.cpu.kernels.linear import (
    lower_gated_linear,
    lower_linear,
    lower_qkv_linear,
)
from crossinfer.backends.cpu.kernels.lower_attention import lower_attention
from crossinfer.backends.cpu.library import KernelLibrary, generator, kernel_library
from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Op, Operands
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f16, f32

_ELEMENTS = 4096
"""Elements of a workgroup of an op that does little with each."""
_MANY_GROUPS = 64
"""Workgroups that keep any number of workers busy; more rows in each is better then."""
_build_argmax = generator("argmax", "build_argmax")
_build_embed = generator("embed", "build_embed")
_build_rms_norm = generator("rms_norm", "build_rms_norm")
_build_rope_kv = generator("rope_kv", "build_rope_kv")
_build_swiglu = generator("swiglu", "build_swiglu")
_build_top_k = generator("top_k", "build_top_k")
_STORED: dict[StorageType, Type] = {DType.F16: f16, DType.F32: f32}


def lower(
    op: OpDescription,
    operands: Mapping[str, Operand],
    target: Target,
    short: Target | None = None,
) -> Sequence[Lowering]:
    """The ways to run `op`, best first; none if this backend has no kernel for it.

    `short` is the target of kernels that round 16-bit products to bfloat16, if they may be used.
    Raises KernelUnsupported if a kernel cannot be compiled.
    """
    kernels = kernel_library(target)
    rounding = kernel_library(short) if short is not None else None
    match op:
        case Linear():
            return lower_linear(operands, kernels, rounding)
        case GatedLinear():
            return lower_gated_linear(operands, kernels, rounding)
        case QkvLinear():
            return lower_qkv_linear(operands, kernels, rounding)
        case Embed():
            return [_embed(op, operands, kernels)]
        case RmsNorm():
            return [_rms_norm(op, operands, kernels)]
        case RopeKv():
            return [_rope_kv(op, operands, kernels)]
        case Attention():
            return [lower_attention(op, operands, kernels)]
        case Swiglu():
            return [_swiglu(op, operands, kernels)]
        case Argmax():
            return [_argmax(op, operands, kernels)]
        case TopK():
            return [_top_k(op, operands, kernels)]
        case _:
            return []


def _embed(op: Embed, operands: Operands, kernels: KernelLibrary) -> Lowering:
    table = operands["table"]
    (V, H), rows = table.shape, operands["ids"].shape[0]
    is_tiled = table.role is Role.WEIGHT
    step = _rows_for(_ELEMENTS, H)
    symbol = f"embed_{table.storage.label}_{'tiled' if is_tiled else 'dense'}"
    return _one_dispatch(
        op,
        operands,
        kernels,
        symbol,
        lambda target: _build_embed(target, symbol, table.storage, tiled=is_tiled),
        struct.pack("<4i", rows, V, H, step),
        ceil_div(rows, step),
    )


def _rms_norm(op: RmsNorm, operands: Operands, kernels: KernelLibrary) -> Lowering:
    D = operands["weight"].shape[0]
    runs = math.prod(operands["x"].shape) // D
    has_residual = "residual" in operands
    step = _rows_for(_ELEMENTS, D)
    symbol = "rms_norm_residual" if has_residual else "rms_norm"
    return _one_dispatch(
        op,
        operands,
        kernels,
        symbol,
        lambda target: _build_rms_norm(target, symbol, has_residual),
        struct.pack("<3if", runs, D, step, op.eps),
        ceil_div(runs, step),
    )


def _rope_kv(op: RopeKv, operands: Operands, kernels: KernelLibrary) -> Lowering:
    stored, D = operands["cache"].storage, op.head_dim
    rows = operands["q"].shape[0]
    query_heads, kv_heads = operands["q"].shape[1] // D, operands["k"].shape[1] // D
    S, B = operands["block_table"].shape
    # Rows that follow each other share cache lines of K, so one worker had better have them.
    step = min(16, ceil_div(rows, _MANY_GROUPS))
    order = "interleaved" if op.interleaved else "halves"
    symbol = f"rope_kv_{stored.label}_{D}_{order}"
    return _one_dispatch(
        op,
        operands,
        kernels,
        symbol,
        lambda target: _build_rope_kv(target, symbol, _STORED[stored], D, op.interleaved),
        struct.pack("<6i", rows, query_heads, kv_heads, S, B, step),
        ceil_div(rows, step),
    )


def _swiglu(op: Swiglu, operands: Operands, kernels: KernelLibrary) -> Lowering:
    n = math.prod(operands["gate"].shape)
    constants = struct.pack("<2i", n, _ELEMENTS)
    groups = ceil_div(n, _ELEMENTS)
    return _one_dispatch(op, operands, kernels, "swiglu", _build_swiglu, constants, groups)


def _argmax(op: Argmax, operands: Operands, kernels: KernelLibrary) -> Lowering:
    rows, V = operands["x"].shape
    constants = struct.pack("<i", V)
    return _one_dispatch(op, operands, kernels, "argmax", _build_argmax, constants, rows)


def _top_k(op: TopK, operands: Operands, kernels: KernelLibrary) -> Lowering:
    rows, V = operands["x"].shape
    constants = struct.pack("<2i", V, op.k)
    return _one_dispatch(op, operands, kernels, "top_k", _build_top_k, constants, rows)


def _rows_for(elements: int, row_length: int) -> int:
    return max(1, elements // row_length)


def _one_dispatch(
    op: Op,
    operands: Operands,
    kernels: KernelLibrary,
    symbol: str,
    build: Callable[[Target], str],
    constants: bytes,
    groups: int,
) -> Lowering:
    """One dispatch over the op's operands, in the order in which the op names them."""
    kernel = kernels.get(_name(op.variant(operands), symbol), symbol, build)
    given = {argument.operand: argument for argument in op.arguments(operands)}
    names = [rule.name for rule in (*op.inputs, *op.outputs) if rule.name in given]
    arguments = tuple(given[name] for name in names)
    return Lowering((LoweredDispatch(kernel, arguments, constants, (groups, 1, 1)),))


def _name(variant: str, symbol: str) -> str:
    """The op's variant and what else the symbol tells: `attention[f16].64`.

    Verdicts go by names, so two functions must not share one.
    """
    told = variant.replace("[", "_").replace("]", "")
    return ".".join(filter(None, (variant, *symbol.removeprefix(told).split("_"))))
