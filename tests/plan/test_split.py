"""How a model is divided among devices, and which of its layers are streamed."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.devices import PlannedDevice
from tests.plan.graphs import small_model

from crossinfer.core.errors import PlanError
from crossinfer.graph.graph import Graph
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceKind
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.fit import fit_split
from crossinfer.plan.fusion import PATTERNS
from crossinfer.plan.layers import Split, count_layers, own_constants, whole
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan, make_plan
from crossinfer.plan.split import slot_bytes

LAYERS = 6


def planned(
    graph: Graph,
    *memory: int | None,
    first_layers: int | None = None,
    stream: bool = False,
    lacks: tuple[str, ...] = (),
    fusions: tuple[str, ...] = (),
) -> Plan:
    """The plan of `graph` as a runner would make it, on devices with so much memory."""
    names = ("first", "second", "third")
    devices: list[Device] = [
        PlannedDevice(
            name, memory_bytes=size, lacks=lacks if name == "first" else (), fusions=fusions
        )
        for name, size in zip(names, memory, strict=False)
    ]
    store = VerdictStore(None)
    layers = count_layers(graph)
    split = fit_split(
        lambda: graph, layers, devices, store, first_layers=first_layers, stream=stream
    )
    return make_plan(graph, devices, store, split=split)


def used(plan: Plan, device: int) -> int:
    """Bytes of a device that the plan takes, activations included."""
    tensors = [*plan.constants_on(device), *plan.states_on(device)]
    kept = sum(packed_bytes(tensor, plan.devices[device]) for tensor in tensors)
    slots = slot_bytes(plan.slots) if device == 0 else 0
    return kept + slots + plan.arenas[device].size + plan.parameters.size


def needed(graph: Graph) -> int:
    """What all of it takes on one device."""
    return used(make_plan(graph, [PlannedDevice()], VerdictStore(None)), 0)


def one_layer(graph: Graph) -> int:
    device = PlannedDevice()
    weights = sum(packed_bytes(tensor, device) for tensor in own_constants(graph)[0])
    return weights + packed_bytes(graph.states["cache0"], device)


def test_exactly_enough_memory_is_enough() -> None:
    graph = small_model(LAYERS)
    total = needed(graph)
    assert planned(graph, total).split == whole(LAYERS)
    assert planned(graph, total, None).split == whole(LAYERS)
    assert planned(graph, total - 1, None).split != whole(LAYERS)
    with pytest.raises(PlanError, match="no room for the model with KV cache"):
        planned(graph, total - 1)


def test_a_gpu_keeps_some_memory_for_gaps_and_its_driver() -> None:
    graph = small_model(LAYERS)
    total = needed(graph)

    def split(memory: int) -> Split:
        gpu, cpu = PlannedDevice(memory_bytes=memory), PlannedDevice("second")
        gpu.info = dataclasses.replace(gpu.info, kind=DeviceKind.DISCRETE_GPU)
        return fit_split(lambda: graph, LAYERS, [gpu, cpu], VerdictStore(None))

    assert split(total * 32 // 31 + 32) == whole(LAYERS)
    assert split(total * 32 // 31 - 32) != whole(LAYERS)


def test_without_limits_everything_is_on_the_first_device() -> None:
    def build() -> Graph:
        raise AssertionError("there is nothing to choose, so the largest graph is not needed")

    devices = [PlannedDevice(), PlannedDevice("second")]
    assert fit_split(build, LAYERS, devices, VerdictStore(None)) == whole(LAYERS)


def test_as_many_layers_as_fit_are_on_the_first_device() -> None:
    graph = small_model(LAYERS)
    layer, total = one_layer(graph), needed(graph)
    for missing in range(1, LAYERS):
        plan = planned(graph, total - missing * layer, None)
        assert plan.split.layers == (0,) * (LAYERS - missing) + (1,) * missing
        # The head's table is the embedding's: it saves more than a layer.
        assert plan.split.head == plan.split.embedding == 0
        assert plan.split.reason == f"first: {LAYERS - missing} of {LAYERS} layers fill its memory"


def test_the_head_is_worth_more_memory_than_the_embedding() -> None:
    graph = small_model(LAYERS, tied=False)
    device = PlannedDevice()
    table = packed_bytes(graph.constants["embedding"], device)
    split = planned(graph, needed(graph) - table, None).split
    assert (split.embedding, split.layers, split.head) == (1, (0,) * LAYERS, 0)


def test_a_head_that_is_larger_than_what_is_left_goes_to_the_next_device() -> None:
    """Rather than a layer of the same size: here four layers are worth more than the head."""
    graph = small_model(LAYERS)
    layer, total = one_layer(graph), needed(graph)
    table = packed_bytes(graph.constants["embedding"], PlannedDevice())
    room = total - (LAYERS - 1) * layer - table
    assert table < layer
    split = planned(graph, room, None).split
    assert split == Split(1, (0,) + (1,) * (LAYERS - 1), 1, reason=split.reason)


def test_a_third_device_takes_what_the_second_cannot() -> None:
    graph = small_model(LAYERS)
    layer, total = one_layer(graph), needed(graph)
    plan = planned(graph, total - 4 * layer, total - 4 * layer, None)
    counts = [plan.split.layers.count(device) for device in range(3)]
    assert counts == [2, 2, 2]
    assert [used(plan, device) <= total - 4 * layer for device in range(2)] == [True, True]


def test_devices_that_together_have_too_little() -> None:
    graph = small_model(LAYERS)
    with pytest.raises(PlanError, match=r"first needs .* and has .*; second needs .* and has .*"):
        planned(graph, needed(graph) // 3, needed(graph) // 3)


def test_so_many_layers_as_were_asked_for() -> None:
    graph = small_model(LAYERS)
    for count in range(LAYERS + 1):
        plan = planned(graph, None, None, first_layers=count)
        assert plan.split.layers == (0,) * count + (1,) * (LAYERS - count)
    assert "it was given 2 of 6 layers" in planned(graph, None, None, first_layers=2).split.reason


def test_layers_that_were_asked_for_and_do_not_fit() -> None:
    graph = small_model(LAYERS)
    room = needed(graph) - 3 * one_layer(graph)
    assert planned(graph, room, None, first_layers=3).split.layers.count(0) == 3
    with pytest.raises(PlanError, match="no room for 5 of the model's 6 layers") as caught:
        planned(graph, room, None, first_layers=5)
    assert "Ask for fewer layers on first" in str(caught.value)


def test_layers_that_nobody_takes() -> None:
    graph = small_model(LAYERS)
    with pytest.raises(PlanError, match=r"4 of the model's 6 layers .* name one, as in first,cpu"):
        planned(graph, None, first_layers=4)
    assert planned(graph, None, first_layers=LAYERS).split == whole(LAYERS)


@pytest.mark.parametrize("count", [-1, LAYERS + 1])
def test_more_layers_than_there_are(count: int) -> None:
    with pytest.raises(PlanError, match="the model has 6; give 0 to 6, or auto"):
        planned(small_model(LAYERS), None, None, first_layers=count)


def test_layers_that_do_not_fit_are_streamed() -> None:
    graph = small_model(LAYERS)
    layer, total = one_layer(graph), needed(graph)
    cache = packed_bytes(graph.states["cache0"], PlannedDevice())
    weights = layer - cache
    for streamed in range(1, LAYERS + 1):
        slots = min(2, streamed) * weights
        plan = planned(graph, total - streamed * weights + slots, stream=True)
        # Two layers in two slots take as much as if they were kept, so they are kept.
        expected = streamed if streamed > 2 else 0
        assert len(plan.split.streamed) == expected
        assert plan.split.layers == (0,) * LAYERS
        assert used(plan, 0) <= total - streamed * weights + slots


def test_streamed_layers_have_segments_of_their_own() -> None:
    plan = planned(small_model(LAYERS), None, first_layers=2, stream=True)
    assert [segment.streamed for segment in plan.segments] == [None, 2, 3, 4, 5, None]
    own = own_constants(plan.graph)
    for layer in range(2, LAYERS):
        assert set(plan.slots[layer].regions) == {tensor.name for tensor in own[layer]}
    kept = {tensor.name for tensor in plan.constants_on(0)}
    assert kept.isdisjoint(name for arena in plan.slots.values() for name in arena.regions)
    assert "angles" in kept  # all layers read it
    assert len(plan.states_on(0)) == LAYERS


def test_a_streamed_layer_whose_ops_are_partly_elsewhere() -> None:
    plan = planned(small_model(LAYERS), None, None, first_layers=4, stream=True, lacks=("swiglu",))
    layers = [segment.streamed for segment in plan.segments if segment.device == 0]
    assert [layers.count(layer) for layer in (3, 4, 5)] == [0, 2, 2]
    assert all(s.streamed is None for s in plan.segments if s.device == 1)


def test_not_even_the_slots_fit() -> None:
    graph = small_model(LAYERS)
    with pytest.raises(PlanError, match="0 of its 6 layers kept and the others streamed"):
        planned(graph, 2 * one_layer(graph), stream=True)


def test_a_second_device_takes_embedding_and_head_of_a_streamed_model() -> None:
    graph = small_model(LAYERS)
    layer = one_layer(graph)
    cache = packed_bytes(graph.states["cache0"], PlannedDevice())
    table = packed_bytes(graph.constants["embedding"], PlannedDevice())
    room = needed(graph) - LAYERS * (layer - cache) + 2 * (layer - cache) - table
    plan = planned(graph, room, None, stream=True)
    assert (plan.split.embedding, plan.split.head) == (1, 1)
    assert len(plan.split.streamed) == LAYERS


widths = st.lists(st.sampled_from([32, 64, 128, 256]), min_size=1, max_size=7)


@settings(deadline=None, max_examples=80)
@given(widths, st.booleans(), st.lists(st.integers(1, 100), min_size=1, max_size=3), st.data())
def test_a_split_never_takes_more_than_there_is(
    sizes: list[int], tied: bool, percent: list[int], data: st.DataObject
) -> None:
    graph = small_model(widths=sizes, tied=tied)
    total = needed(graph)
    memory: list[int | None] = [total * share // 100 + 5000 for share in percent]
    if data.draw(st.booleans()):
        memory[-1] = None
    stream = data.draw(st.booleans())
    lacks = data.draw(st.sampled_from([(), ("swiglu",), ("linear",), ("attention",)]))
    if len(memory) == 1:
        lacks = ()
    fusions = data.draw(st.sampled_from([(), tuple(PATTERNS)]))
    try:
        plan = planned(graph, *memory, stream=stream, lacks=lacks, fusions=fusions)
    except PlanError:
        return  # that there is no room is tested above
    for device, room in enumerate(memory):
        assert room is None or used(plan, device) <= room
    assert list(plan.split.layers) == sorted(plan.split.layers)
    assert len(plan.split.layers) == len(sizes)
    steps = [step.node for segment in plan.segments for step in segment.steps]
    assert steps == list(plan.graph.nodes)  # every node, once, in order
    streamed = sorted(plan.split.streamed)
    assert streamed == list(range(len(sizes)))[len(sizes) - len(streamed) :]
    for layer, own in own_constants(graph).items():
        if layer in plan.split.streamed:
            assert {t.name for t in own} == set(plan.slots[layer].regions)
    comes_with = {name: layer for layer, arena in plan.slots.items() for name in arena.regions}
    for segment in plan.segments:
        if segment.device == 0:
            read = {t.name for step in segment.steps for t in step.node.inputs.values()}
            layers = {comes_with[name] for name in read & comes_with.keys()}
            assert layers <= {segment.streamed}


@settings(deadline=None, max_examples=40)
@given(widths, st.booleans(), st.integers(1, 100))
def test_one_more_layer_would_not_fit(sizes: list[int], tied: bool, percent: int) -> None:
    graph = small_model(widths=sizes, tied=tied)
    room = needed(graph) * percent // 100
    split = planned(graph, room, None).split
    kept = split.layers.count(0)
    if split == whole(len(sizes)) or kept == len(sizes):
        return
    more = Split(split.embedding, (0,) * (kept + 1) + (1,) * (len(sizes) - kept - 1), split.head)
    devices: list[Device] = [PlannedDevice("first"), PlannedDevice("second")]
    plan = make_plan(graph, devices, VerdictStore(None), split=more)
    whole_plan = make_plan(graph, devices, VerdictStore(None), split=whole(len(sizes)))
    activations = whole_plan.arenas[0].size + plan.parameters.size
    tensors = [*plan.constants_on(0), *plan.states_on(0)]
    assert sum(packed_bytes(t, devices[0]) for t in tensors) + activations > room


def test_layers_are_contiguous_on_each_device() -> None:
    graph = small_model(LAYERS)
    plan = planned(graph, needed(graph) // 2, None)
    layers = [(n.layer, s.device) for s in plan.segments for n in (step.node for step in s.steps)]
    of_layers = [device for layer, device in layers if layer is not None]
    assert len(list(itertools.groupby(of_layers))) == 2
    states = [tensor.name for device in (0, 1) for tensor in plan.states_on(device)]
    assert states == list(graph.states)
