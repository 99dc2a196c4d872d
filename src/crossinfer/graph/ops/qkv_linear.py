"""qkv_linear: the projections that attention starts with, in one op.

    q = x' · q_weightᵀ + q_bias
    k = x' · k_weightᵀ + k_bias
    v = x' · v_weightᵀ + v_bias

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
from crossinfer.hal.kernel import Operand


@record
class QkvLinear(NormedProduct):
    """x f32 [T, K], q_weight [Nq, K], k_weight and v_weight [Nkv, K] of any storage each, q_bias
    f32 [Nq], k_bias and v_bias f32 [Nkv], norm_weight f32 [K] → q f32 [T, Nq], k and v f32
    [T, Nkv].

    `eps` is given exactly if norm_weight is.
    """

    name: ClassVar[str] = "qkv_linear"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("x"),
        OperandRule("q_weight"),
        OperandRule("k_weight"),
        OperandRule("v_weight"),
        OperandRule("q_bias", optional=True),
        OperandRule("k_bias", optional=True),
        OperandRule("v_bias", optional=True),
        NORM_WEIGHT,
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("q"),
        OperandRule("k"),
        OperandRule("v"),
    )
    stored: ClassVar[tuple[str, ...]] = ("q_weight", "k_weight", "v_weight")

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        x = inputs["x"]
        weights = {name: inputs[f"{name}_weight"] for name in "qkv"}
        self.require(
            has(x, DType.F32, 2)
            and all(len(w.shape) == 2 and w.shape[1] == x.shape[1] for w in weights.values())
            and weights["k"].shape == weights["v"].shape,
            inputs,
            "x[T, K] in f32, q_weight[Nq, K], k_weight[Nkv, K] and v_weight[Nkv, K]",
        )
        biases = {name: float32(weight.shape[0]) for name, weight in weights.items()}
        self.require(
            all(inputs.get(f"{name}_bias", bias) == bias for name, bias in biases.items())
            and fits_norm(inputs, self.eps),
            inputs,
            "q_bias[Nq], k_bias[Nkv] and v_bias[Nkv] in f32, and norm_weight[K] in f32 if there "
            "is an eps",
        )
        return {name: float32(x.shape[0], weight.shape[0]) for name, weight in weights.items()}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = norm_folded(inputs, self.eps)
        return {
            name: product(x, inputs[f"{name}_weight"], inputs.get(f"{name}_bias")) for name in "qkv"
        }
