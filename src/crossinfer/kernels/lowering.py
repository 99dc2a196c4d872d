"""What each op becomes on a device that runs these shaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.kernel import Lowering, OpDescription, Operand
from crossinfer.kernels.attention import lower_attention, lower_rope_kv
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.linear import lower_linear
from crossinfer.kernels.row_ops import lower_embed, lower_rms_norm, lower_swiglu
from crossinfer.kernels.selection import lower_argmax, lower_top_k

__all__ = ["Capabilities", "MakeKernel", "lower"]


def lower(
    op: OpDescription,
    operands: Mapping[str, Operand],
    capabilities: Capabilities,
    make_kernel: MakeKernel,
) -> Sequence[Lowering]:
    """The ways to run `op`, best first; empty if no kernel can."""
    match op:
        case Linear():
            return lower_linear(operands, capabilities, make_kernel)
        case Embed():
            return (lower_embed(operands, make_kernel),)
        case RmsNorm():
            return (lower_rms_norm(op, operands, make_kernel),)
        case RopeKv():
            return lower_rope_kv(op, operands, make_kernel)
        case Attention():
            return lower_attention(op, operands, capabilities, make_kernel)
        case Swiglu():
            return (lower_swiglu(operands, make_kernel),)
        case Argmax():
            return (lower_argmax(operands, make_kernel),)
        case TopK():
            return lower_top_k(op, operands, make_kernel)
        case _:
            return ()
