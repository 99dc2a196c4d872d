"""Fusion of a feed-forward block's up projection with its gate."""

from __future__ import annotations

import pytest
from tests.plan.devices import PlannedDevice
from tests.plan.graphs import HIDDEN, feed_forward, weight

from crossinfer.core.dtypes import DType
from crossinfer.graph.builder import GraphBuilder
from crossinfer.graph.graph import Tensor
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
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
    device = PlannedDevice(lacks=["gated_linear"], fusions=["swiglu"])
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
    store.record(device.info, "gated_linear[f16]", passed=False)
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
