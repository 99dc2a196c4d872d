"""Fusion of projections with each other, with what follows, and with the norm before them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from tests.plan.devices import PlannedDevice
from tests.plan.graphs import HIDDEN, feed_forward, small_model, weight

from crossinfer.core.dtypes import DType
from crossinfer.graph.builder import GraphBuilder
from crossinfer.graph.graph import Tensor
from crossinfer.graph.op import float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.plan import Plan, make_plan


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder()


@pytest.fixture
def x(builder: GraphBuilder) -> Tensor:
    return builder.constant("x", (3, HIDDEN), DType.F32, Role.PLAIN)


def names(plan: Plan) -> list[str]:
    return [step.node.name for segment in plan.segments for step in segment.steps]


def planned(builder: GraphBuilder, device: PlannedDevice | None = None) -> Plan:
    device = device or PlannedDevice(fusions=["swiglu"])
    return make_plan(builder.build(), [device], VerdictStore(None))


def linear(builder: GraphBuilder, name: str, x: Tensor, **more: Tensor) -> Tensor:
    return builder.apply(name, Linear(), x=x, weight=weight(builder, name, 64), **more)["output"]


def test_the_up_projection_takes_the_gate(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    plan = planned(builder)
    assert names(plan) == ["gate", "up+swiglu", "down"]
    fused = plan.graph.nodes[1]
    assert fused.op == Linear()
    assert {name: tensor.name for name, tensor in fused.inputs.items()} == {
        "x": "x",
        "weight": "up",
        "gate": "gate.output",
    }
    assert fused.outputs["output"].type == float32(3, 64)
    regions = {key.name for key in plan.arenas[0].regions if isinstance(key, Tensor)}
    assert regions == {"gate.output", "swiglu.output", "down.output"}


def test_a_bias_stays(builder: GraphBuilder, x: Tensor) -> None:
    bias = builder.constant("bias", (64,), DType.F32, Role.PLAIN)
    up = linear(builder, "up", x, bias=bias)
    gate = linear(builder, "gate", x)
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    plan = planned(builder)
    assert names(plan) == ["gate", "up+act"]
    assert plan.graph.nodes[1].inputs["bias"] is bias


def test_only_where_the_device_asks_for_it(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    assert names(planned(builder, PlannedDevice())) == ["gate", "up", "swiglu", "down"]


def test_only_where_the_device_has_the_kernel(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    device = PlannedDevice(lacks=["linear_of_gate"], fusions=["swiglu"])
    assert names(planned(builder, device)) == ["gate", "up", "swiglu", "down"]


def test_not_if_something_else_reads_the_projection(builder: GraphBuilder, x: Tensor) -> None:
    gate, up = linear(builder, "gate", x), linear(builder, "up", x)
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    builder.output("z", builder.apply("other", Swiglu(), gate=up, up=gate)["output"])
    assert names(planned(builder)) == ["gate", "up", "act", "other"]


def test_not_if_the_projection_is_its_own_gate(builder: GraphBuilder, x: Tensor) -> None:
    up = linear(builder, "up", x)
    builder.output("y", builder.apply("act", Swiglu(), gate=up, up=up)["output"])
    assert names(planned(builder)) == ["up", "act"]


def test_not_if_the_projection_is_an_output(builder: GraphBuilder, x: Tensor) -> None:
    gate, up = linear(builder, "gate", x), linear(builder, "up", x)
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    builder.output("up", up)
    assert names(planned(builder)) == ["gate", "up", "act"]


@pytest.mark.parametrize("operand", ["gate", "residual"])
def test_not_if_the_projection_does_more_already(
    builder: GraphBuilder, x: Tensor, operand: str
) -> None:
    gate = linear(builder, "gate", x)
    up = linear(builder, "up", x, **{operand: gate})
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    assert names(planned(builder)) == ["gate", "up", "act"]


def test_not_if_something_else_makes_up(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", builder.apply("act", Swiglu(), gate=x, up=x)["output"])
    assert names(planned(builder)) == ["act"]


def test_not_across_devices(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    first = PlannedDevice("first", lacks=["swiglu"], fusions=["swiglu"])
    other = PlannedDevice("other", fusions=["swiglu"])
    plan = make_plan(builder.build(), [first, other], VerdictStore(None))
    assert names(plan) == ["gate", "up", "swiglu", "down"]


def test_the_reason_stays_with_the_fused_node(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    first = PlannedDevice("first", lacks=["swiglu", "linear"], fusions=["swiglu"])
    other = PlannedDevice("other", fusions=["swiglu"])
    plan = make_plan(builder.build(), [first, other], VerdictStore(None))
    reasons = {s.node.name: s.reason for segment in plan.segments for s in segment.steps}
    assert reasons["up+swiglu"] == "first: it has no kernel for swiglu"


def test_a_barred_kernel_is_not_fused_into(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    device, store = PlannedDevice(fusions=["swiglu"]), VerdictStore(None)
    store.record(device.info, "linear_of_gate[f16]", passed=False)
    plan = make_plan(builder.build(), [device], store)
    assert names(plan) == ["gate", "up", "swiglu", "down"]


def test_not_if_the_input_has_changed_in_between(builder: GraphBuilder, x: Tensor) -> None:
    """Fused, the projection would run where swiglu stands, after the change."""
    q = builder.apply("q", Linear(), x=x, weight=weight(builder, "q", HIDDEN))["output"]
    gate, up = linear(builder, "gate", x), linear(builder, "up", q)
    builder.apply(
        "rope",
        RopeKv(HIDDEN),
        q=q,
        k=x,
        v=x,
        table=builder.constant("angles", (9, HIDDEN // 2, 2), DType.F32, Role.PLAIN),
        query_start=builder.input("query_start", (2,)),
        kv_len=builder.input("kv_len", (1,)),
        block_table=builder.input("block_table", (1, 2)),
        cache=builder.state("cache", (4, 2, 1, 16, HIDDEN), DType.F16),
    )
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    assert names(planned(builder)) == ["q", "gate", "up", "rope", "act"]


ALL = ["gated_linear", "swiglu", "qkv_linear", "norm"]
HEAD_DIM = 16


def fused(builder: GraphBuilder, *fusions: str, lacks: tuple[str, ...] = ()) -> list[str]:
    return names(planned(builder, PlannedDevice(fusions=fusions, lacks=lacks)))


def test_both_projections_and_their_gate_are_one(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    plan = planned(builder, PlannedDevice(fusions=["gated_linear", "swiglu"]))
    assert names(plan) == ["gate+up+swiglu", "down"]
    node = plan.graph.nodes[0]
    assert node.op == GatedLinear()
    assert {name: tensor.name for name, tensor in node.inputs.items()} == {
        "x": "x",
        "gate_weight": "gate",
        "up_weight": "up",
    }
    regions = {key.name for key in plan.arenas[0].regions if isinstance(key, Tensor)}
    assert regions == {"swiglu.output", "down.output"}


def test_a_device_without_the_joined_kernel_has_the_other(builder: GraphBuilder, x: Tensor) -> None:
    builder.output("y", feed_forward(builder, x))
    found = fused(builder, "gated_linear", "swiglu", lacks=("gated_linear",))
    assert found == ["gate", "up+swiglu", "down"]


def test_biases_of_both_projections_stay(builder: GraphBuilder, x: Tensor) -> None:
    biases = [builder.constant(f"b{n}", (64,), DType.F32, Role.PLAIN) for n in range(2)]
    gate = linear(builder, "gate", x, bias=biases[0])
    up = linear(builder, "up", x, bias=biases[1])
    builder.output("y", builder.apply("act", Swiglu(), gate=gate, up=up)["output"])
    node = planned(builder, PlannedDevice(fusions=["gated_linear"])).graph.nodes[0]
    assert (node.inputs["gate_bias"], node.inputs["up_bias"]) == tuple(biases)


@pytest.mark.parametrize("why", ["other x", "gate read again", "up read again", "one linear"])
def test_projections_that_stay_apart(builder: GraphBuilder, x: Tensor, why: str) -> None:
    gate = linear(builder, "gate", x)
    other = builder.constant("other", (3, HIDDEN), DType.F32, Role.PLAIN)
    up = linear(builder, "up", other if why == "other x" else x)
    given = (gate, gate) if why == "one linear" else (gate, up)
    act = Swiglu()
    builder.output("y", builder.apply("act", act, gate=given[0], up=given[1])["output"])
    if "again" in why:
        read = gate if why.startswith("gate") else up
        builder.output("z", builder.apply("more", act, gate=read, up=read)["output"])
    assert "act" in fused(builder, "gated_linear")


def attending(
    builder: GraphBuilder,
    x: Tensor,
    *,
    headed: bool = False,
    order: str = "qkv",
    other: str = "",
    weights: Mapping[str, Tensor] = MappingProxyType({}),
    **biases: Tensor,
) -> list[Tensor]:
    """Projections in `order`, that of `other` from another x, head norms if wanted, rope_kv."""
    sizes = {"q": 2 * HEAD_DIM, "k": HEAD_DIM, "v": HEAD_DIM}
    second = builder.constant("second", (3, HIDDEN), DType.F32, Role.PLAIN)
    made = {}
    for name in order:
        given = {"bias": biases[name]} if name in biases else {}
        kernel = weights.get(name) or weight(builder, name, sizes[name])
        source = second if name == other else x
        made[name] = builder.apply(name, Linear(), x=source, weight=kernel, **given)["output"]
    projected = [made[name] for name in "qkv"]
    if headed:
        size = builder.constant("head_norm", (HEAD_DIM,), DType.F32, Role.PLAIN)
        for name in "qk":
            norm = builder.apply(f"{name}_norm", RmsNorm(1e-6), x=made[name], weight=size)
            made[name] = norm["output"]
    builder.apply(
        "rope",
        RopeKv(HEAD_DIM),
        **{name: made[name] for name in "qkv"},
        table=builder.constant("angles", (9, HEAD_DIM // 2, 2), DType.F32, Role.PLAIN),
        query_start=builder.input("query_start", (2,)),
        kv_len=builder.input("kv_len", (1,)),
        block_table=builder.input("block_table", (1, 2)),
        cache=builder.state("cache", (4, 2, 1, 16, HEAD_DIM), DType.F16),
    )
    return projected


@pytest.mark.parametrize("order", ["qkv", "vkq"])
def test_three_projections_are_one(builder: GraphBuilder, x: Tensor, order: str) -> None:
    bias = builder.constant("bias", (HEAD_DIM,), DType.F32, Role.PLAIN)
    projected = attending(builder, x, order=order, v=bias)
    plan = planned(builder, PlannedDevice(fusions=["qkv_linear"]))
    assert names(plan) == ["q+k+v", "rope"]
    node = plan.graph.nodes[0]
    assert node.op == QkvLinear()
    assert {name: tensor.name for name, tensor in node.inputs.items()} == {
        "x": "x",
        "q_weight": "q",
        "k_weight": "k",
        "v_weight": "v",
        "v_bias": "bias",
    }
    assert list(node.outputs.values()) == projected


def test_head_norms_come_after_the_joined_projections(builder: GraphBuilder, x: Tensor) -> None:
    attending(builder, x, headed=True)
    assert fused(builder, *ALL) == ["q+k+v", "q_norm", "k_norm", "rope"]


def test_a_weight_that_is_computed_keeps_projections_apart(
    builder: GraphBuilder, x: Tensor
) -> None:
    """It may come after the place of the first."""
    table = builder.constant("rows", (5, HIDDEN), DType.F32, Role.PLAIN)
    ids = builder.input("ids", (HEAD_DIM,))
    made = builder.apply("pick", Embed(), ids=ids, table=table)["output"]
    attending(builder, x, weights={"k": made})
    assert fused(builder, *ALL) == ["pick", "q", "k", "v", "rope"]


def test_projections_of_different_inputs_stay_apart(builder: GraphBuilder, x: Tensor) -> None:
    attending(builder, x, other="k")
    assert fused(builder, *ALL) == ["q", "k", "v", "rope"]


def test_a_whole_layer() -> None:
    """The norm before the feed-forward block is missing from this model."""
    device = PlannedDevice(fusions=ALL)
    plan = make_plan(small_model(layers=1), [device], VerdictStore(None))
    layer = [name.replace("layers.0.", "") for name in names(plan)]
    assert layer == [
        "embed",
        "norm+q+k+v",
        "rope_kv",
        "attention",
        "o",
        "gate+up+swiglu",
        "down",
        "head",
        "argmax",
        "top_k",
    ]
    node = next(node for node in plan.graph.nodes if isinstance(node.op, QkvLinear))
    assert node.op == QkvLinear(eps=1e-5)
    assert node.inputs["x"].name == "embed.output"
    assert node.inputs["norm_weight"].name == "norm0"


def test_a_norm_stays_where_the_device_cannot_fold_it() -> None:
    device = PlannedDevice(fusions=ALL, lacks=["norm_qkv_linear"])
    plan = make_plan(small_model(layers=1), [device], VerdictStore(None))
    assert names(plan)[1:3] == ["layers.0.norm", "layers.0.q+layers.0.k+layers.0.v"]


@pytest.mark.parametrize("why", ["read again", "of heads", "after an addition", "an output"])
def test_norms_that_stay(builder: GraphBuilder, why: str) -> None:
    x = builder.constant("raw", (3, HIDDEN), DType.F32, Role.PLAIN)
    length = HIDDEN // 2 if why == "of heads" else HIDDEN
    size = builder.constant("size", (length,), DType.F32, Role.PLAIN)
    more = {"residual": x} if why == "after an addition" else {}
    h = builder.apply("norm", RmsNorm(1e-6), x=x, weight=size, **more)["output"]
    builder.output("y", feed_forward(builder, h) if why == "read again" else gated(builder, h))
    if why == "an output":
        builder.output("h", h)
    assert fused(builder, *ALL)[0] == "norm"


def gated(builder: GraphBuilder, x: Tensor) -> Tensor:
    gate, up = linear(builder, "gate", x), linear(builder, "up", x)
    return builder.apply("act", Swiglu(), gate=gate, up=up)["output"]


def test_a_norm_goes_into_the_projections(builder: GraphBuilder, x: Tensor) -> None:
    size = builder.constant("size", (HIDDEN,), DType.F32, Role.PLAIN)
    h = builder.apply("norm", RmsNorm(1e-6), x=x, weight=size)["output"]
    builder.output("y", gated(builder, h))
    assert fused(builder, *ALL) == ["norm+gate+up+act"]
    assert fused(builder, "norm") == ["norm", "gate", "up", "act"]


def test_rotation_and_attention_are_one() -> None:
    graph = small_model(layers=1)
    rope = next(node for node in graph.nodes if isinstance(node.op, RopeKv))
    plan = make_plan(graph, [PlannedDevice(fusions=["rope_attention"])], VerdictStore(None))
    layer = [name.replace("layers.0.", "") for name in names(plan)]
    assert layer[4:7] == ["v", "rope_kv+attention", "o"]
    node = next(node for node in plan.graph.nodes if isinstance(node.op, RopeAttention))
    assert node.op == RopeAttention(HEAD_DIM, HEAD_DIM**-0.5)
    assert node.inputs == rope.inputs
    assert node.outputs["written"] is rope.outputs["written"]
    regions = {key.name for key in plan.arenas[0].regions if isinstance(key, Tensor)}
    assert "layers.0.q.output" in regions


@pytest.mark.parametrize("why", ["another cache", "another q"])
def test_attention_of_something_else_stays_apart(builder: GraphBuilder, why: str) -> None:
    rows = builder.constant("rows", (3, HEAD_DIM), DType.F32, Role.PLAIN)
    tables = {
        "query_start": builder.input("query_start", (2,)),
        "kv_len": builder.input("kv_len", (1,)),
        "block_table": builder.input("block_table", (1, 2)),
    }
    caches = [builder.state(f"cache{n}", (4, 2, 1, 16, HEAD_DIM), DType.F16) for n in range(2)]
    angles = builder.constant("angles", (9, HEAD_DIM // 2, 2), DType.F32, Role.PLAIN)
    q = linear(builder, "q", builder.constant("x", (3, HIDDEN), DType.F32, Role.PLAIN))
    made = builder.apply(
        "rope", RopeKv(HEAD_DIM), q=q, k=rows, v=rows, table=angles, cache=caches[0], **tables
    )
    other_q = linear(builder, "other", builder.constant("z", (3, HIDDEN), DType.F32, Role.PLAIN))
    attended = builder.apply(
        "attention",
        Attention(HEAD_DIM, 0.5),
        q=other_q if why == "another q" else made["rotated"],
        cache=caches[1] if why == "another cache" else made["written"],
        **tables,
    )
    builder.output("y", attended["output"])
    assert fused(builder, "rope_attention") == ["q", "rope", "other", "attention"]
