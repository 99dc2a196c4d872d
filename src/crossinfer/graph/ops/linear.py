"""linear: the product with a weight matrix, and what may follow it in the same kernel.

    y = x · weightᵀ + bias
    output = act(gate) · y + residual        act(gate) is silu(gate), or 1 without a gate

`gate` makes it the second half of a SwiGLU feed-forward block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.op import Op, OperandRule, Operands, float32, has
from crossinfer.graph.ops.swiglu import silu
from crossinfer.hal.kernel import Operand

# Weights taken to float64 at once: a whole vocabulary would need gigabytes, two megabytes stay in
# cache.
_CHUNK_ELEMENTS = 1 << 18


@record
class Linear(Op):
    """x f32 [T, K], weight [N, K] of any storage, bias f32 [N], gate and residual f32 [T, N] →
    output f32 [T, N].
    """

    name: ClassVar[str] = "linear"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("x"),
        OperandRule("weight"),
        OperandRule("bias", optional=True),
        OperandRule("gate", optional=True),
        OperandRule("residual", optional=True),
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)
    stored: ClassVar[tuple[str, ...]] = ("weight",)

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        x, weight = inputs["x"], inputs["weight"]
        self.require(
            has(x, DType.F32, 2) and len(weight.shape) == 2 and x.shape[1] == weight.shape[1],
            inputs,
            "x[T, K] in f32 and weight[N, K]",
        )
        output = float32(x.shape[0], weight.shape[0])
        self.require(
            inputs.get("bias", float32(weight.shape[0])) == float32(weight.shape[0])
            and inputs.get("gate", output) == output
            and inputs.get("residual", output) == output,
            inputs,
            "bias[N], gate[T, N] and residual[T, N] in f32",
        )
        return {"output": output}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        y = product(inputs["x"], inputs["weight"], inputs.get("bias"))
        if "gate" in inputs:
            y *= silu(inputs["gate"])
        if "residual" in inputs:
            y += inputs["residual"]
        return {"output": y}


def product(x: Array, weight: Array, bias: Array | None) -> Array:
    """x · weightᵀ + bias in float64."""
    x = x.astype(np.float64)
    y = np.empty((len(x), len(weight)))
    step = max(1, _CHUNK_ELEMENTS // weight.shape[1])
    for start in range(0, len(weight), step):
        rows = weight[start : start + step].astype(np.float64)
        np.matmul(x, rows.T, out=y[:, start : start + step])
    return y if bias is None else y + bias
