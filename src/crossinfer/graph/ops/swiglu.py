"""swiglu: the gate of a feed-forward block (Shazeer 2020).

    output = gate · sigmoid(gate) · up

element by element.
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
class Swiglu(Op):
    """gate, up f32 [T, F] → output f32 [T, F]."""

    name: ClassVar[str] = "swiglu"
    inputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("gate"), OperandRule("up"))
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        gate, up = inputs["gate"], inputs["up"]
        self.require(
            has(gate, DType.F32, 2) and has(up, DType.F32, 2) and gate.shape == up.shape,
            inputs,
            "gate and up of one shape [T, F] in f32",
        )
        return {"output": Operand(gate.shape, DType.F32)}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"output": silu(inputs["gate"]) * inputs["up"]}


def silu(x: Array) -> Array:
    """x · sigmoid(x) in float64, without overflow for large negative x."""
    x = x.astype(np.float64)
    decay = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, decay) / (1.0 + decay)
