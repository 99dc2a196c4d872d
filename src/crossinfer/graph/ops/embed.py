"""embed: rows of a table.

    output[t] = table[ids[t]]

Also gathers rows of activations, such as those whose logits are wanted.
"""

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
class Embed(Op):
    """ids i32 [T], table [V, H] of any storage → output f32 [T, H].

    An id outside 0 … V - 1 gives a row of NaN: never a read outside the table.
    """

    name: ClassVar[str] = "embed"
    inputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("ids"), OperandRule("table"))
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)
    stored: ClassVar[tuple[str, ...]] = ("table",)
    tolerance: ClassVar[Tolerance] = Tolerance.F32  # one multiply-add a weight

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        ids, table = inputs["ids"], inputs["table"]
        fits = has(ids, DType.I32, 1) and len(table.shape) == 2
        self.require(fits, inputs, "ids[T] in i32 and table[V, H]")
        return {"output": float32(ids.shape[0], table.shape[1])}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        ids, table = inputs["ids"], inputs["table"]
        known = (ids >= 0) & (ids < len(table))
        rows = table[np.where(known, ids, 0)].astype(np.float64)
        rows[~known] = np.nan
        return {"output": rows}
