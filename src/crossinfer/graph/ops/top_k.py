"""top_k: each row's k largest elements, so that sampling need not download a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.op import Op, OperandRule, Operands, float32, has
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.kernel import Operand


@record
class TopK(Op):
    """x f32 [R, V] without NaN → values f32 [R, k] in descending order, indices i32 [R, k].

    Of equal elements the lower index comes first.
    """

    name: ClassVar[str] = "top_k"
    inputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("x"),)
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("values"), OperandRule("indices"))
    tolerance: ClassVar[Tolerance] = Tolerance.EXACT
    k: int

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        x = inputs["x"]
        fits = has(x, DType.F32, 2) and 1 <= self.k <= x.shape[1]
        self.require(fits, inputs, f"x[R, V] in f32 with V at least k = {self.k} and k at least 1")
        rows = x.shape[0]
        return {"values": float32(rows, self.k), "indices": Operand((rows, self.k), DType.I32)}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        indices = np.argsort(-x, axis=1, kind="stable")[:, : self.k]
        return {"values": np.take_along_axis(x, indices, axis=1), "indices": indices}
