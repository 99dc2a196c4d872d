"""linear, gated_linear and qkv_linear: the kernels that their products take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.linear_mat import lower_mat, mat_shaders
from crossinfer.kernels.linear_vec import MOST_VEC_TOKENS, lower_gated_vec, lower_vec, vec_shaders
from crossinfer.kernels.shader import ShaderKernel

_GATE = "gate projection"
"""Scratch memory of a gated_linear that takes two dispatches."""


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that the lowerings here may choose."""
    yield from vec_shaders()
    yield from mat_shaders()


def lower_linear(
    operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """The ways to run linear, best first."""
    lowerings = lower_mat(operands, capabilities, make_kernel)
    if operands["x"].shape[0] <= MOST_VEC_TOKENS:
        return (Lowering((lower_vec(operands, capabilities, make_kernel),)), *lowerings)
    return lowerings


def lower_gated_linear(
    op: GatedLinear, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """In one dispatch if the weights are alike; else the gate's product before the other's."""
    if operands["x"].shape[0] > MOST_VEC_TOKENS:
        return ()
    gate, up = operands["gate_weight"], operands["up_weight"]
    if gate.storage is up.storage:
        run = lower_gated_vec(operands, op.eps, capabilities, make_kernel)
        return (Lowering((run,)),)
    output = operands["output"]
    first = lower_vec(
        operands,
        capabilities,
        make_kernel,
        weight="gate_weight",
        bias="gate_bias",
        output=_GATE,
        eps=op.eps,
    )
    second = lower_vec(
        {**operands, _GATE: output},
        capabilities,
        make_kernel,
        weight="up_weight",
        bias="up_bias",
        gate=_GATE,
        eps=op.eps,
    )
    return (Lowering((first, second), {_GATE: DType.F32.bytes_for(output.shape)}),)


def lower_qkv_linear(
    op: QkvLinear, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """Three dispatches that run side by side: nothing that they write is read by another."""
    if operands["x"].shape[0] > MOST_VEC_TOKENS:
        return ()
    runs = tuple(
        lower_vec(
            operands,
            capabilities,
            make_kernel,
            weight=f"{name}_weight",
            bias=f"{name}_bias",
            output=name,
            eps=op.eps,
        )
        for name in "qkv"
    )
    return (Lowering(runs),)
