"""gated_linear: both projections of a SwiGLU feed-forward block (Shazeer 2020) and their product.

    output = silu(x' · gate_weightᵀ + gate_bias) · (x' · up_weightᵀ + up_bias)

x' is x, or its rms_norm (see `folded_norm`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.op import OperandRule, Operands, float32, has
from crossinfer.graph.ops.folded_norm import NORM_WEIGHT, NormedProduct, fits_norm, norm_folded
from crossinfer.graph.ops.linear import product
from crossinfer.graph.ops.swiglu import silu
from crossinfer.hal.kernel import Operand


@record
class GatedLinear(NormedProduct):
    """x f32 [T, K], gate_weight and up_weight [F, K] of any storage each, gate_bias and up_bias
    f32 [F], norm_weight f32 [K] → output f32 [T, F].

    `eps` is given exactly if norm_weight is.
    """

    name: ClassVar[str] = "gated_linear"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("x"),
        OperandRule("gate_weight"),
        OperandRule("up_weight"),
        OperandRule("gate_bias", optional=True),
        OperandRule("up_bias", optional=True),
        NORM_WEIGHT,
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)
    stored: ClassVar[tuple[str, ...]] = ("gate_weight", "up_weight")

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        x, gate, up = inputs["x"], inputs["gate_weight"], inputs["up_weight"]
        self.require(
            has(x, DType.F32, 2)
            and len(gate.shape) == 2
            and gate.shape == up.shape
            and x.shape[1] == gate.shape[1],
            inputs,
            "x[T, K] in f32, gate_weight[F, K] and up_weight[F, K]",
        )
        T, F = x.shape[0], gate.shape[0]
        bias = float32(F)
        self.require(
            inputs.get("gate_bias", bias) == inputs.get("up_bias", bias) == bias
            and fits_norm(inputs, self.eps),
            inputs,
            "gate_bias[F] and up_bias[F] in f32, and norm_weight[K] in f32 if there is an eps",
        )
        return {"output": float32(T, F)}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = norm_folded(inputs, self.eps)
        gate = product(x, inputs["gate_weight"], inputs.get("gate_bias"))
        return {"output": silu(gate) * product(x, inputs["up_weight"], inputs.get("up_bias"))}
