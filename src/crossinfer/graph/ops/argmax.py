"""argmax: the index of each row's largest element, and a check that the row can be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.op import Op, OperandRule, Operands, has
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.kernel import Operand


@record
class Argmax(Op):
    """x f32 [R, V] → output i32 [R]. The lowest index wins a tie.

    A row that holds a NaN, or whose largest element is an infinity, gives -1: the caller learns of
    bad logits from the four bytes that it downloads.
    """

    name: ClassVar[str] = "argmax"
    inputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("x"),)
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)
    tolerance: ClassVar[Tolerance] = Tolerance.EXACT

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        self.require(has(inputs["x"], DType.F32, 2), inputs, "x[R, V] in f32")
        return {"output": Operand(inputs["x"].shape[:1], DType.I32)}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        usable = np.isfinite(np.max(x, axis=1))  # the maximum of a row with a NaN is NaN
        return {"output": np.where(usable, np.argmax(x, axis=1), -1)}
