"""linear, gated_linear and qkv_linear: the kernels that their products take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.kernel import LoweredDispatch, Lowering
from crossinfer.kernels.activations import ROUNDING
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.linear_mat import lower_mat, mat_shaders
from crossinfer.kernels.linear_vec import (
    MOST_VEC_TOKENS,
    lower_gated_vec,
    lower_vec,
    takes_dots,
    vec_shaders,
)
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
    if operands["x"].shape[0] > MOST_VEC_TOKENS:
        return lowerings

    def products(integer: bool) -> Lowering:
        run = lower_vec(operands, capabilities, make_kernel, integer=integer)
        return _lowering((run,), integer)

    return (*_ways(products, operands, ("weight",), capabilities), *lowerings)


def lower_gated_linear(
    op: GatedLinear, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """In one dispatch if the weights are alike; else the gate's product before the other's."""
    if operands["x"].shape[0] > MOST_VEC_TOKENS:
        return ()
    weights = ("gate_weight", "up_weight")
    output = operands["output"]

    def joined(integer: bool) -> Lowering:
        run = lower_gated_vec(operands, op.eps, capabilities, make_kernel, integer)
        return _lowering((run,), integer)

    def apart(integer: bool) -> Lowering:
        first = lower_vec(
            operands,
            capabilities,
            make_kernel,
            weight="gate_weight",
            bias="gate_bias",
            output=_GATE,
            eps=op.eps,
            integer=integer,
        )
        second = lower_vec(
            {**operands, _GATE: output},
            capabilities,
            make_kernel,
            weight="up_weight",
            bias="up_bias",
            gate=_GATE,
            eps=op.eps,
            integer=integer,
        )
        return _lowering((first, second), integer, {_GATE: DType.F32.bytes_for(output.shape)})

    are_alike = operands["gate_weight"].storage is operands["up_weight"].storage
    return _ways(joined if are_alike else apart, operands, weights, capabilities)


def lower_qkv_linear(
    op: QkvLinear, operands: Operands, capabilities: Capabilities, make_kernel: MakeKernel
) -> Sequence[Lowering]:
    """Three dispatches that run side by side: nothing that they write is read by another."""
    if operands["x"].shape[0] > MOST_VEC_TOKENS:
        return ()

    def products(integer: bool) -> Lowering:
        runs = tuple(
            lower_vec(
                operands,
                capabilities,
                make_kernel,
                weight=f"{name}_weight",
                bias=f"{name}_bias",
                output=name,
                eps=op.eps,
                integer=integer,
            )
            for name in "qkv"
        )
        return _lowering(runs, integer)

    return _ways(products, operands, ("q_weight", "k_weight", "v_weight"), capabilities)


def _ways(
    lowered: Callable[[bool], Lowering],
    operands: Operands,
    weights: Sequence[str],
    capabilities: Capabilities,
) -> Sequence[Lowering]:
    """What `lowered` gives for products of floats and, if it can be, for integer dot products."""
    if not takes_dots(operands, weights, capabilities):
        return (lowered(False),)
    return tuple(lowered(i) for i in sorted((False, True), reverse=capabilities.fast_integer_dots))


def _lowering(
    runs: Sequence[LoweredDispatch], integer: bool, scratch: Mapping[str, int] | None = None
) -> Lowering:
    return Lowering(tuple(runs), scratch or {}, {"x": ROUNDING} if integer else {})
