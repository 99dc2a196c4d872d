"""Small graphs for the tests of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.core.dtypes import DType
from crossinfer.graph.builder import GraphBuilder
from crossinfer.graph.graph import Graph, Tensor
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Role

ROWS, HIDDEN, HEAD_DIM, VOCABULARY = 5, 32, 16, 40


def weight(builder: GraphBuilder, name: str, size: int, length: int = HIDDEN) -> Tensor:
    return builder.constant(f"{builder.scope}{name}", (size, length), DType.F16)


def feed_forward(builder: GraphBuilder, x: Tensor, size: int = 64) -> Tensor:
    gate = builder.apply("gate", Linear(), x=x, weight=weight(builder, "gate", size))["output"]
    up = builder.apply("up", Linear(), x=x, weight=weight(builder, "up", size))["output"]
    made = builder.apply("swiglu", Swiglu(), gate=gate, up=up)["output"]
    down = weight(builder, "down", HIDDEN, size)
    return builder.apply("down", Linear(), x=made, weight=down, residual=x)["output"]


def small_model(
    layers: int = 2, rows: int = ROWS, widths: Sequence[int] | None = None, tied: bool = True
) -> Graph:
    """A decoder with every op in it. `widths` are those of its feed-forward blocks."""
    widths = [64] * layers if widths is None else widths
    builder = GraphBuilder()
    tables = {
        "query_start": builder.input("query_start", (2,)),
        "kv_len": builder.input("kv_len", (1,)),
        "block_table": builder.input("block_table", (1, 3)),
    }
    tokens = builder.input("tokens", (rows,))
    embedding = builder.constant("embedding", (VOCABULARY, HIDDEN), DType.F16)
    x = builder.apply("embed", Embed(), ids=tokens, table=embedding)["output"]
    angles = builder.constant("angles", (48, HEAD_DIM // 2, 2), DType.F32, Role.PLAIN)
    for layer, width in enumerate(widths):
        builder.scope, builder.layer = f"layers.{layer}.", layer
        norm = builder.constant(f"norm{layer}", (HIDDEN,), DType.F32, Role.PLAIN)
        h = builder.apply("norm", RmsNorm(1e-5), x=x, weight=norm)["output"]
        q, k, v = (
            builder.apply(name, Linear(), x=h, weight=weight(builder, name, size))["output"]
            for name, size in (("q", HIDDEN), ("k", HEAD_DIM), ("v", HEAD_DIM))
        )
        cache = builder.state(f"cache{layer}", (6, 2, 1, 16, HEAD_DIM), DType.F16)
        rope = builder.apply(
            "rope_kv", RopeKv(HEAD_DIM), q=q, k=k, v=v, table=angles, cache=cache, **tables
        )
        attention = Attention(HEAD_DIM, HEAD_DIM**-0.5)
        q, cache = rope["rotated"], rope["written"]
        mixed = builder.apply("attention", attention, q=q, cache=cache, **tables)["output"]
        o = weight(builder, "o", HIDDEN)
        x = builder.apply("o", Linear(), x=mixed, weight=o, residual=x)["output"]
        x = feed_forward(builder, x, width)
    builder.scope, builder.layer = "", None
    head = embedding if tied else weight(builder, "lm_head", VOCABULARY)
    logits = builder.apply("head", Linear(), x=x, weight=head)["output"]
    builder.output("logits", logits)
    builder.output("argmax", builder.apply("argmax", Argmax(), x=logits)["output"])
    best = builder.apply("top_k", TopK(3), x=logits)
    builder.output("best", best["values"])
    builder.output("candidates", best["indices"])
    return builder.build()
