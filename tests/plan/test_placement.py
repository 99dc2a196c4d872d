"""Which device runs what, and why."""

from __future__ import annotations

import pytest
from tests.plan.devices import PlannedDevice
from tests.plan.graphs import small_model

from crossinfer.core.errors import PlanError
from crossinfer.graph.ops import OPS
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.explain import explain
from crossinfer.plan.plan import Plan, Step, make_plan

NO_VERDICTS = VerdictStore(None)


def devices(*, lacks: tuple[str, ...] = ()) -> list[Device]:
    return [PlannedDevice("first", lacks=lacks), PlannedDevice("other")]


def steps(plan: Plan) -> dict[str, tuple[int, Step]]:
    return {
        step.node.name: (segment.device, step)
        for segment in plan.segments
        for step in segment.steps
    }


def placement(plan: Plan) -> dict[str, int]:
    return {name: device for name, (device, _) in steps(plan).items()}


def test_everything_goes_to_the_first_device() -> None:
    plan = make_plan(small_model(), devices(), NO_VERDICTS)
    assert set(placement(plan).values()) == {0}
    assert [segment.transfers for segment in plan.segments] == [()]
    assert all(step.reason == "" for _, step in steps(plan).values())
    assert list(steps(plan)) == [node.name for node in small_model().nodes]
    assert plan.arenas[1].size == 0


@pytest.mark.parametrize("op", [op.name for op in OPS])
def test_what_a_device_lacks_goes_to_the_next(op: str) -> None:
    graph = small_model()
    plan = make_plan(graph, devices(lacks=(op,)), NO_VERDICTS)
    together = {"rope_kv", "attention"}
    moved = together if op in together else {op}
    for node in graph.nodes:
        device, step = steps(plan)[node.name]
        assert device == (node.op.name in moved), node.name
        if device:
            assert step.reason.startswith(f"first: it has no kernel for {op}")
            assert step.reason in explain(plan)
        else:
            assert step.reason == ""


@pytest.mark.parametrize("op", ["rope_kv", "attention"])
def test_a_cache_and_its_nodes_stay_together(op: str) -> None:
    plan = make_plan(small_model(), devices(lacks=(op,)), NO_VERDICTS)
    for layer in range(2):
        names = [f"layers.{layer}.{node}" for node in ("rope_kv", "attention")]
        assert {placement(plan)[name] for name in names} == {1}
    assert [tensor.name for tensor in plan.states_on(1)] == ["cache0", "cache1"]
    assert plan.states_on(0) == []


def test_pinned_caches_stay_where_they_are() -> None:
    plan = make_plan(small_model(), devices(), NO_VERDICTS, pinned={"cache0": 1})
    assert placement(plan)["layers.0.rope_kv"] == placement(plan)["layers.0.attention"] == 1
    assert placement(plan)["layers.1.rope_kv"] == 0
    assert steps(plan)["layers.0.rope_kv"][1].reason == ""


def test_no_device_has_a_kernel() -> None:
    pair: list[Device] = [
        PlannedDevice("first", lacks=["attention"]),
        PlannedDevice("other", lacks=["rope_kv"]),
    ]
    with pytest.raises(PlanError) as caught:
        make_plan(small_model(), pair, NO_VERDICTS)
    message = str(caught.value)
    assert message.startswith("No device can run layers.0.rope_kv and layers.0.attention. ")
    assert "first: it has no kernel for attention[f16]" in message
    assert "other: it has no kernel for rope_kv[f16]" in message
    assert message.endswith("Add a device, such as cpu.")


def test_no_device() -> None:
    with pytest.raises(PlanError, match="No device was given"):
        make_plan(small_model(), [], NO_VERDICTS)


def test_a_pinned_cache_whose_device_lacks_a_kernel_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"No device can run .*attention"):
        make_plan(small_model(), devices(lacks=("attention",)), NO_VERDICTS, pinned={"cache1": 0})


def test_a_barred_kernel_is_not_planned() -> None:
    store = VerdictStore(None)
    pair = devices()
    store.record(pair[0].info, "swiglu", passed=False, reason="output is wrong by 0.3")
    store.record(pair[0].info, "embed[f16]", passed=True)
    plan = make_plan(small_model(), pair, store)
    assert {name for name, device in placement(plan).items() if device} == {
        "layers.0.swiglu",
        "layers.1.swiglu",
    }
    assert "first: swiglu is barred (output is wrong by 0.3)" in explain(plan)
    store.record(pair[0].info, "swiglu", passed=True)
    again = make_plan(small_model(), pair, store)
    assert set(placement(again).values()) == {0}


def test_a_kernel_barred_everywhere_is_an_error() -> None:
    store, pair = VerdictStore(None), devices()
    for device in pair:
        store.record(device.info, "argmax", passed=False, reason="wrong")
    with pytest.raises(PlanError, match=r"argmax.*first: argmax is barred.*other: argmax is") as e:
        make_plan(small_model(), pair, store)
    again = "have what is barred tried again: `crossinfer verify --device {} --forget`"
    assert all(again.format(device.info.name) in str(e.value) for device in pair)
