"""The ops, one file each. `OPS` is the table that tests, backends and docs go by."""

from __future__ import annotations

from crossinfer.graph.op import Op
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK

OPS: tuple[type[Op], ...] = (
    Embed,
    RmsNorm,
    Linear,
    GatedLinear,
    QkvLinear,
    RopeKv,
    Attention,
    RopeAttention,
    Swiglu,
    Argmax,
    TopK,
)
