"""embed, rms_norm and swiglu: ops that do little with each element."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.dispatching import MakeKernel, dispatch, flat_grid, power_of_two
from crossinfer.kernels.shader import ShaderKernel, define
from crossinfer.kernels.weights import STORAGES, row_chunks, row_vectors, weight_defines

_EMBED_CONSTANTS = struct.Struct("<6I")
_EMBED_COLUMNS = 256
"""Columns that a group of embed takes."""
_NORM_THREADS = 256
_ELEMENTS_OF_LANE = 4
"""Elements of a run for each lane of rms_norm, where there are so many lanes."""
_SWIGLU_THREADS = 256

_SWIGLU = ShaderKernel("swiglu", "swiglu.hlsl", 2, 1, 4, _SWIGLU_THREADS)


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that the lowerings here may choose."""
    yield from (_embed_shader(storage) for storage in (*STORAGES, None))
    yield from (_norm_shader(has_residual) for has_residual in (False, True))
    yield _SWIGLU


def lower_embed(operands: Operands, make_kernel: MakeKernel, rows: range | None = None) -> Lowering:
    """embed, from a weight or from activations; from some rows of the table, if they are given."""
    table, (T,) = operands["table"], operands["ids"].shape
    V, H = table.shape
    rows = range(V) if rows is None else rows
    is_dense = table.role is not Role.WEIGHT
    shader = _embed_shader(None if is_dense else table.storage)
    row_words = H if is_dense else 4 * row_vectors(H, table.storage)
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=("ids", "table"),
        writes=("output",),
        constants=_EMBED_CONSTANTS.pack(
            V, H, row_chunks(H, table.storage), row_words, rows.start, rows.stop
        ),
        grid=(ceil_div(H, _EMBED_COLUMNS), T, 1),
    )
    return Lowering((run,))


def lower_rms_norm(op: RmsNorm, operands: Operands, make_kernel: MakeKernel) -> Lowering:
    """rms_norm over runs as long as the weight."""
    D = operands["weight"].shape[0]
    runs = math.prod(operands["x"].shape) // D
    has_residual = "residual" in operands
    lanes = min(_NORM_THREADS, power_of_two(ceil_div(D, _ELEMENTS_OF_LANE)))
    shader = _norm_shader(has_residual)
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=("x", "weight", "residual") if has_residual else ("x", "weight"),
        writes=("output", "sum") if has_residual else ("output",),
        constants=struct.pack("<3If", runs, D, lanes, op.eps),
        grid=flat_grid(ceil_div(runs, _NORM_THREADS // lanes)),
    )
    return Lowering((run,))


def lower_swiglu(operands: Operands, make_kernel: MakeKernel) -> Lowering:
    """swiglu, element by element."""
    elements = math.prod(operands["gate"].shape)
    run = dispatch(
        make_kernel(_SWIGLU),
        _SWIGLU,
        reads=("gate", "up"),
        writes=("output",),
        constants=struct.pack("<I", elements),
        grid=flat_grid(ceil_div(elements, _SWIGLU_THREADS)),
    )
    return Lowering((run,))


def _embed_shader(storage: StorageType | None) -> ShaderKernel:
    """None: the table is a plain float32 tensor."""
    return ShaderKernel(
        name=f"embed[{storage.label if storage else 'dense'}]",
        source="embed.hlsl",
        reads=2,
        writes=1,
        constant_bytes=_EMBED_CONSTANTS.size,
        group_size=64,
        defines=define(DENSE=int(storage is None)) + (weight_defines(storage) if storage else ()),
    )


def _norm_shader(has_residual: bool) -> ShaderKernel:
    return ShaderKernel(
        name="rms_norm[residual]" if has_residual else "rms_norm",
        source="rms_norm.hlsl",
        reads=2 + has_residual,
        writes=1 + has_residual,
        constant_bytes=16,
        group_size=_NORM_THREADS,
        defines=define(HAS_RESIDUAL=int(has_residual)),
    )
