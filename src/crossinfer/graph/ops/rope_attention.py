"""rope_attention: rope_kv and the attention that follows it, in one op.

Queries are not rotated in place. What the step adds to the KV cache is seen by its own queries as
it was computed, before it is rounded to the cache's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Op, OperandRule, Operands
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.rope_kv import RopeKv, fits_rope
from crossinfer.hal.kernel import Operand


@record
class RopeAttention(Op):
    """Inputs as those of rope_kv → output f32 [T, Hq·D] as that of attention, written (cache in
    place).
    """

    name: ClassVar[str] = "rope_attention"
    inputs: ClassVar[tuple[OperandRule, ...]] = RopeKv.inputs
    outputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("output"),
        OperandRule("written", updates="cache"),
    )
    stored: ClassVar[tuple[str, ...]] = ("cache",)
    head_dim: int
    scale: float
    interleaved: bool = False
    window: int | None = None

    @property
    def rope(self) -> RopeKv:
        """The first of the two ops."""
        return RopeKv(self.head_dim, self.interleaved)

    @property
    def attention(self) -> Attention:
        """The second."""
        return Attention(self.head_dim, self.scale, self.window)

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        q, D = inputs["q"], self.head_dim
        self.require(
            fits_rope(inputs, D) and q.shape[1] % (inputs["cache"].shape[2] * D) == 0,
            inputs,
            "q[T, Hq·D], k and v[T, Hkv·D] with Hq a multiple of Hkv, table[P, D/2, 2], the batch "
            f"tables and cache[blocks, 2, Hkv, {BLOCK_TOKENS}, D] with an even D = {D}",
        )
        return {"output": q, "written": inputs["cache"]}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        wide = {
            **inputs,
            "q": inputs["q"].astype(np.float64),
            "cache": inputs["cache"].astype(np.float64),
        }
        self.rope.compute(wide)
        self.rope.compute({**inputs, "q": inputs["q"].copy()})
        return self.attention.compute(wide)
