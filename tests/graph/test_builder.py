"""Graphs and the errors of building them."""

from __future__ import annotations

import pytest

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import PlanError
from crossinfer.graph.builder import GraphBuilder
from crossinfer.graph.graph import Source, Tensor
from crossinfer.graph.op import float32
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder()


def embedded(builder: GraphBuilder, name: str = "embed", size: int = 16) -> Tensor:
    ids = builder.constant("ids", (3,), DType.I32, Role.PLAIN)
    table = builder.constant(f"table{size}", (5, size), DType.F32)
    return builder.apply(name, Embed(), ids=ids, table=table)["output"]


def rotated(builder: GraphBuilder, q: Tensor) -> dict[str, Tensor]:
    k = embedded(builder, "k", size=8)
    return builder.apply(
        "rope",
        RopeKv(8),
        q=q,
        k=k,
        v=k,
        table=builder.constant("angles", (9, 4, 2), DType.F32, Role.PLAIN),
        query_start=builder.input("query_start", (2,)),
        kv_len=builder.input("kv_len", (1,)),
        block_table=builder.input("block_table", (1, 2)),
        cache=builder.state("cache", (4, 2, 1, 16, 8), DType.F16),
    )


def test_a_graph_holds_what_was_built(builder: GraphBuilder) -> None:
    x = embedded(builder)
    builder.scope = "layers.0."
    weight = builder.constant("w", (4, 16), DType.F16)
    up = builder.apply("up", Linear(), x=x, weight=weight, bias=None)["output"]
    made = builder.apply("act", Swiglu(), gate=up, up=up)["output"]
    builder.output("result", made)
    graph = builder.build()
    assert [node.name for node in graph.nodes] == ["embed", "layers.0.up", "layers.0.act"]
    assert list(graph.nodes[1].inputs) == ["x", "weight"]
    assert made.name == "layers.0.act.output"
    assert made.type == float32(3, 4)
    assert made.source is Source.NODE
    assert graph.outputs == {"result": made}
    assert graph.consumers()[up] == [graph.nodes[2]] * 2
    assert graph.constants["w"] is weight
    assert weight.source is Source.CONSTANT


def test_a_constant_is_shared_by_name(builder: GraphBuilder) -> None:
    first = builder.constant("w", (4, 16), DType.F16)
    assert builder.constant("w", (4, 16), DType.F16) is first


def test_inputs_and_states_have_one_name_each(builder: GraphBuilder) -> None:
    builder.input("t", (1,))
    builder.state("t", (1, 2, 1, 16, 8), DType.F16)
    with pytest.raises(PlanError, match="two tensors of the name t"):
        builder.input("t", (1,))
    with pytest.raises(PlanError, match="two tensors of the name t"):
        builder.state("t", (1, 2, 1, 16, 8), DType.F16)


def test_errors_name_the_node_and_the_op(builder: GraphBuilder) -> None:
    x = embedded(builder)
    builder.scope = "layers.3."
    with pytest.raises(PlanError, match=r"layers\.3\.act: The op swiglu needs the input up"):
        builder.apply("act", Swiglu(), gate=x)
    with pytest.raises(PlanError, match=r"layers\.3\.act: The op swiglu has no input mask"):
        builder.apply("act", Swiglu(), gate=x, up=x, mask=x)
    other = embedded(builder, "other", size=8)
    with pytest.raises(PlanError, match=r"layers\.3\.act: .* gate f32\[3x16\], up f32\[3x8\]"):
        builder.apply("act", Swiglu(), gate=x, up=other)
    assert [node.name for node in builder.build().nodes] == ["embed", "layers.3.other"]


def test_an_update_in_place(builder: GraphBuilder) -> None:
    made = rotated(builder, embedded(builder))
    node = builder.build().nodes[-1]
    assert node.updated() == {"rotated": "q", "written": "cache"}
    assert made["written"].type.role is Role.KV_CACHE
    assert node.operand_types() == node.input_types()


def test_what_was_changed_in_place_is_not_read_again(builder: GraphBuilder) -> None:
    q = embedded(builder)
    rotated(builder, q)
    builder.apply("late", Swiglu(), gate=q, up=q)
    with pytest.raises(PlanError, match=r"rope changes embed\.output in place, but a later node"):
        builder.build()


def test_reading_before_the_change_is_fine(builder: GraphBuilder) -> None:
    q = embedded(builder)
    builder.apply("early", Swiglu(), gate=q, up=q)
    rotated(builder, q)
    builder.build()


def test_outputs_are_made_by_ops_and_named_once(builder: GraphBuilder) -> None:
    with pytest.raises(PlanError, match="output result must be made by an op, but ids"):
        builder.output("result", builder.input("ids", (3,)))
    x = embedded(builder)
    builder.output("result", x)
    with pytest.raises(PlanError, match="two outputs of the name result"):
        builder.output("result", x)
