"""What the kernels of attention share: sizes, constants, the define of the cache."""

from __future__ import annotations

import dataclasses
import struct

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.attention import Attention
from crossinfer.kernels.shader import define

CACHES = (DType.F16, DType.F32)
CONSTANTS = struct.Struct("<8If")
"""As in `hlsl/attention.hlsli`."""
_NO_WINDOW = 0x7FFFFFFF


@dataclasses.dataclass(frozen=True)
class AttentionShape:
    """The sizes of an attention."""

    rows: int
    query_heads: int
    kv_heads: int
    head_dim: int
    sequences: int
    table_blocks: int
    window: int
    scale: float

    @property
    def sharing(self) -> int:
        """Query heads that share a KV head."""
        return self.query_heads // self.kv_heads

    def constants(self, parts: int) -> bytes:
        """Those that all kernels of attention take."""
        return CONSTANTS.pack(
            self.query_heads,
            self.kv_heads,
            self.head_dim,
            self.sequences,
            self.table_blocks,
            self.window,
            parts,
            self.part_entries(parts) * self.head_dim,
            self.scale,
        )

    def part_entries(self, parts: int) -> int:
        """What attention_split writes: for each a sum of head_dim elements and a (m, l)."""
        return self.rows * self.query_heads * parts


def attention_shape(op: Attention, operands: Operands) -> AttentionShape:
    """The sizes that the operands give."""
    S, B = operands["block_table"].shape
    return AttentionShape(
        rows=operands["q"].shape[0],
        query_heads=operands["q"].shape[1] // op.head_dim,
        kv_heads=operands["cache"].shape[2],
        head_dim=op.head_dim,
        sequences=S,
        table_blocks=B,
        window=_NO_WINDOW if op.window is None else op.window,
        scale=op.scale,
    )


def fitting(largest: dict[int, int], head_dim: int) -> int:
    """The smallest of the largest head_dims that a kernel takes."""
    return next(size for size in largest if head_dim <= size)


def cache_define(cache: StorageType) -> tuple[tuple[str, str], ...]:
    """What tells `hlsl/batch.hlsli` the type of the cache."""
    return define(CACHE_HALF=int(cache is DType.F16))
