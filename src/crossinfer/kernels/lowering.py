"""What each op becomes on a device that runs these shaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from crossinfer.hal.kernel import Lowering, OpDescription, Operand
from crossinfer.kernels.attention import lower_attention, lower_rope_kv
from crossinfer.kernels.attention_decode import lower_rope_attention
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.linear import lower_gated_linear, lower_linear, lower_qkv_linear
from crossinfer.kernels.row_ops import lower_embed, lower_rms_norm, lower_swiglu
from crossinfer.kernels.row_ranges import lower_in_ranges, view_bytes, why_too_large
from crossinfer.kernels.selection import lower_argmax, lower_top_k

__all__ = ["FUSIONS", "Capabilities", "MakeKernel", "lower", "why_too_large"]

FUSIONS = frozenset(("gated_linear", "swiglu", "qkv_linear", "norm", "rope_attention"))
"""The patterns of `plan.fusion` that pay where these shaders run."""


def lower(
    op: OpDescription,
    operands: Mapping[str, Operand],
    capabilities: Capabilities,
    make_kernel: MakeKernel,
) -> Sequence[Lowering]:
    """The ways to run `op`, best first; empty if no kernel can."""
    large = {name for name, o in operands.items() if view_bytes(o) > capabilities.max_view_bytes}
    if large:
        return lower_in_ranges(op, operands, large, capabilities, make_kernel)
    match op:
        case Linear():
            return lower_linear(operands, capabilities, make_kernel)
        case GatedLinear():
            return lower_gated_linear(op, operands, capabilities, make_kernel)
        case QkvLinear():
            return lower_qkv_linear(op, operands, capabilities, make_kernel)
        case Embed():
            return (lower_embed(operands, make_kernel),)
        case RmsNorm():
            return (lower_rms_norm(op, operands, make_kernel),)
        case RopeKv():
            return lower_rope_kv(op, operands, make_kernel)
        case Attention():
            return lower_attention(op, operands, capabilities, make_kernel)
        case RopeAttention():
            return lower_rope_attention(op, operands, capabilities, make_kernel)
        case Swiglu():
            return (lower_swiglu(operands, make_kernel),)
        case Argmax():
            return (lower_argmax(operands, make_kernel),)
        case TopK():
            return lower_top_k(op, operands, make_kernel)
        case _:
            return ()
