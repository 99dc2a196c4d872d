"""attention: causal grouped-query attention (Ainslie et al. 2023) over the paged KV cache.

For the row at position p and query head h, with the keys and values of KV head h·Hkv // Hq at the
positions j ≤ p (and j > p - window, if there is a window):

    output = Σ_j softmax_j(q · k_j · scale) · v_j
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.batch import BLOCK_TOKENS, sequences
from crossinfer.graph.op import Op, OperandRule, Operands, are_batch_tables, float32, has
from crossinfer.hal.kernel import Operand


@record
class Attention(Op):
    """q f32 [T, Hq·D], cache f16 or f32 [blocks, 2, Hkv, 16, D], query_start i32 [S + 1],
    kv_len i32 [S], block_table i32 [S, B] → output f32 [T, Hq·D].
    """

    name: ClassVar[str] = "attention"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("q"),
        OperandRule("cache"),
        OperandRule("query_start"),
        OperandRule("kv_len"),
        OperandRule("block_table"),
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (OperandRule("output"),)
    stored: ClassVar[tuple[str, ...]] = ("cache",)
    head_dim: int
    scale: float
    window: int | None = None

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        q, cache = inputs["q"], inputs["cache"]
        D = self.head_dim
        self.require(
            has(q, DType.F32, 2)
            and len(cache.shape) == 5
            and cache.shape[1] == 2
            and cache.shape[3:] == (BLOCK_TOKENS, D)
            and q.shape[1] % (cache.shape[2] * D) == 0
            and cache.storage in (DType.F16, DType.F32)
            and are_batch_tables(inputs),
            inputs,
            f"q[T, Hq·D], cache[blocks, 2, Hkv, {BLOCK_TOKENS}, D] with D = {D} and Hq a multiple "
            "of Hkv, and the batch tables",
        )
        return {"output": float32(*q.shape)}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        q, cache = inputs["q"].astype(np.float64), inputs["cache"]
        output = np.zeros_like(q)
        tables = (inputs["query_start"], inputs["kv_len"], inputs["block_table"])
        for sequence in sequences(*tables):
            # [blocks, 2, Hkv, 16, D] → [2, Hkv, tokens, D]
            stored = cache[sequence.blocks].astype(np.float64).transpose(1, 2, 0, 3, 4)
            keys, values = stored.reshape(2, cache.shape[2], -1, self.head_dim)
            keys, values = keys[:, : sequence.kv_len], values[:, : sequence.kv_len]
            output[sequence.rows] = self._attend(
                q[sequence.rows], keys, values, sequence.first_position
            )
        return {"output": output}

    def _attend(self, q: Array, keys: Array, values: Array, first_position: int) -> Array:
        """q [T, Hq·D], keys and values [Hkv, tokens, D] → [T, Hq·D]."""
        kv_heads, tokens, D = keys.shape
        heads = q.reshape(len(q), kv_heads, -1, D).transpose(1, 2, 0, 3)  # [Hkv, group, T, D]
        scores = heads @ keys[:, None].swapaxes(-1, -2) * self.scale
        position = np.arange(first_position, first_position + len(q))[:, None]
        token = np.arange(tokens)
        hidden = token > position
        if self.window is not None:
            hidden |= token <= position - self.window
        scores[..., hidden] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        result: Array = weights @ values[:, None]
        return result.transpose(2, 0, 1, 3).reshape(q.shape)
