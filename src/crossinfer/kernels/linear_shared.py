"""What the families of linear share: constants, arguments and the names of their shaders."""

from __future__ import annotations

import struct

from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.hal.kernel import Grid, Lowering
from crossinfer.kernels.dispatching import MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel, define
from crossinfer.kernels.weights import row_chunks, row_vectors, unit_columns, weight_defines

_CONSTANTS = struct.Struct("<7I")
_OPTIONAL = ("bias", "gate", "residual")
"""In the order of their bits in `hlsl/input.hlsli`."""


def is_odd(K: int, storage: StorageType) -> bool:
    """Whether rows of x end within a unit of weights."""
    return K % unit_columns(storage) != 0


def lower_to(
    shader: ShaderKernel, operands: Operands, lanes: int, grid: Grid, make_kernel: MakeKernel
) -> Lowering:
    """linear in one dispatch of a shader of either family."""
    T, K = operands["x"].shape
    weight = operands["weight"]
    follows = sum(1 << bit for bit, name in enumerate(_OPTIONAL) if name in operands)
    constants = _CONSTANTS.pack(
        T,
        weight.shape[0],
        K,
        row_chunks(K, weight.storage),
        row_vectors(K, weight.storage),
        lanes,
        follows,
    )
    reads = ("x", "weight", *(name if name in operands else "x" for name in _OPTIONAL))
    run = dispatch(
        make_kernel(shader),
        shader,
        reads=reads,
        writes=("output",),
        constants=constants,
        grid=grid,
    )
    return Lowering((run,))


def linear_shader(
    family: str, storage: StorageType, variant: str, odd: bool, threads: int, **values: int
) -> ShaderKernel:
    """A shader of a family; `values` are its defines beside those of the weight."""
    return ShaderKernel(
        name=f"{family}[{storage.label},{variant}{',odd' if odd else ''}]",
        source=f"{family}.hlsl",
        reads=5,
        writes=1,
        constant_bytes=_CONSTANTS.size,
        group_size=threads,
        defines=weight_defines(storage) + define(ODD_COLUMNS=int(odd), **values),
    )
