"""rms_norm: root mean square normalisation (Zhang and Sennrich 2019), optionally after an addition.

    sum = x + residual                      (x itself without a residual)
    output = sum / sqrt(mean(sum²) + eps) * weight

The mean is over runs of D = len(weight) elements: a whole row in a decoder layer, one head in
query and key normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.op import Op, OperandRule, Operands, has
from crossinfer.hal.kernel import Operand


@record
class RmsNorm(Op):
    """x f32 [T, G·D], weight f32 [D], residual f32 [T, G·D] → output, sum f32 [T, G·D].

    `sum` exists only with a residual.
    """

    name: ClassVar[str] = "rms_norm"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("x"),
        OperandRule("weight"),
        OperandRule("residual", optional=True),
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("output"),
        OperandRule("sum", optional=True),
    )
    eps: float

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        x, weight = inputs["x"], inputs["weight"]
        self.require(
            has(x, DType.F32, 2)
            and has(weight, DType.F32, 1)
            and x.shape[1] % weight.shape[0] == 0
            and inputs.get("residual", x) == x,
            inputs,
            "x[T, G·D], weight[D] in f32 and a residual like x",
        )
        output = Operand(x.shape, DType.F32)
        return {"output": output} | ({"sum": output} if "residual" in inputs else {})

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"].astype(np.float64)
        if "residual" in inputs:
            x = x + inputs["residual"]
        output = normalised(x, inputs["weight"], self.eps)
        return {"output": output} | ({"sum": x} if "residual" in inputs else {})


def normalised(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x²) + eps) · weight in float64, over runs of len(weight) elements."""
    runs = x.astype(np.float64).reshape(-1, len(weight))
    mean_square = np.mean(runs * runs, axis=1, keepdims=True)
    output: Array = runs / np.sqrt(mean_square + eps) * weight.astype(np.float64)
    return output.reshape(x.shape)
