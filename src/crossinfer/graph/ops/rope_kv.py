"""rope_kv: rotary position embedding (Su et al. 2021) of queries and keys, and the KV cache write.

With (c, s) = table[position, i], each pair of elements of a head becomes

    (a, b) → (a·c - b·s, a·s + b·c)

Pairs are (i, i + D/2), or (2i, 2i + 1) when `interleaved`. Rotated keys and unrotated values go to
the slots of their positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import record
from crossinfer.graph.batch import BLOCK_TOKENS, sequences
from crossinfer.graph.op import Op, OperandRule, Operands, are_batch_tables, float32, has
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.kernel import Operand


@record
class RopeKv(Op):
    """q f32 [T, Hq·D], k and v f32 [T, Hkv·D], table f32 [P, D/2, 2] (cosine, sine),
    query_start i32 [S + 1], kv_len i32 [S], block_table i32 [S, B], cache f16 or f32
    [blocks, 2, Hkv, 16, D] → rotated (q in place), written (cache in place).
    """

    name: ClassVar[str] = "rope_kv"
    inputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("q"),
        OperandRule("k"),
        OperandRule("v"),
        OperandRule("table"),
        OperandRule("query_start"),
        OperandRule("kv_len"),
        OperandRule("block_table"),
        OperandRule("cache"),
    )
    outputs: ClassVar[tuple[OperandRule, ...]] = (
        OperandRule("rotated", updates="q"),
        OperandRule("written", updates="cache"),
    )
    stored: ClassVar[tuple[str, ...]] = ("cache",)
    tolerance: ClassVar[Tolerance] = Tolerance.F32
    head_dim: int
    interleaved: bool = False

    def infer(self, inputs: Operands) -> dict[str, Operand]:
        D = self.head_dim
        self.require(
            fits_rope(inputs, D),
            inputs,
            "q[T, Hq·D], k and v[T, Hkv·D], table[P, D/2, 2], the batch tables and "
            f"cache[blocks, 2, Hkv, {BLOCK_TOKENS}, D] with an even D = {D}",
        )
        return {"rotated": inputs["q"], "written": inputs["cache"]}

    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        q, cache, table = inputs["q"], inputs["cache"], inputs["table"]
        tables = (inputs["query_start"], inputs["kv_len"], inputs["block_table"])
        for sequence in sequences(*tables):
            rows = sequence.rows
            positions = np.arange(sequence.first_position, sequence.kv_len)
            cos_sin = table[positions].astype(np.float64)
            q[rows] = self._rotate(q[rows], cos_sin)
            k = self._rotate(inputs["k"][rows], cos_sin)
            blocks, slots = sequence.blocks[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS
            for half, values in enumerate((k, inputs["v"][rows])):
                heads = values.reshape(len(values), -1, self.head_dim)
                cache[blocks, half, :, slots] = heads
        return {}

    def _rotate(self, x: Array, cos_sin: Array) -> Array:
        heads = x.reshape(len(x), -1, self.head_dim).astype(np.float64)
        cos, sin = cos_sin[:, None, :, 0], cos_sin[:, None, :, 1]
        half = self.head_dim // 2
        first = slice(0, None, 2) if self.interleaved else slice(0, half)
        second = slice(1, None, 2) if self.interleaved else slice(half, None)
        a, b = heads[..., first].copy(), heads[..., second].copy()
        heads[..., first] = a * cos - b * sin
        heads[..., second] = a * sin + b * cos
        return heads.reshape(x.shape)


def fits_rope(inputs: Operands, head_dim: int) -> bool:
    """Whether q, k, v, table, the batch tables and the cache fit together."""
    q, k, cache, D = inputs["q"], inputs["k"], inputs["cache"], head_dim
    return (
        D % 2 == 0
        and has(q, DType.F32, 2)
        and k == inputs["v"] == float32(q.shape[0], k.shape[-1])
        and q.shape[1] % D == k.shape[1] % D == 0
        and has(inputs["table"], DType.F32, 3)
        and inputs["table"].shape[1:] == (D // 2, 2)
        and are_batch_tables(inputs)
        and cache.shape[1:] == (2, k.shape[1] // D, BLOCK_TOKENS, D)
        and cache.storage in (DType.F16, DType.F32)
    )
