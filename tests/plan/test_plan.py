"""Segments, transfers, activation memory over the whole plan, and its explanation."""

from __future__ import annotations

import itertools

from tests.plan.devices import PlannedDevice
from tests.plan.graphs import HIDDEN, ROWS, small_model

from crossinfer.core.shapes import format_bytes
from crossinfer.graph.graph import Node, Source, Tensor
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.explain import device_rows, explain, split_sentence, step_rows
from crossinfer.plan.fit import fit_split
from crossinfer.plan.layers import own_constants
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan, make_plan


def planned(*lacks: str, layers: int = 2) -> Plan:
    devices = [PlannedDevice("first", lacks=lacks), PlannedDevice("other")]
    return make_plan(small_model(layers), devices, VerdictStore(None))


def transfers(plan: Plan) -> list[tuple[str, int, int]]:
    return [
        (transfer.tensor.name, transfer.source, transfer.target)
        for segment in plan.segments
        for transfer in segment.transfers
    ]


def test_segments_are_runs_of_one_device() -> None:
    plan = planned("swiglu")
    assert [segment.device for segment in plan.segments] == [0, 1, 0, 1, 0]
    assert [step.node.name for step in plan.segments[1].steps] == ["layers.0.swiglu"]
    nodes = [step.node for segment in plan.segments for step in segment.steps]
    assert tuple(nodes) == plan.graph.nodes


def test_a_tensor_is_transferred_where_it_is_needed() -> None:
    assert transfers(planned("swiglu", layers=1)) == [
        ("layers.0.gate.output", 0, 1),
        ("layers.0.up.output", 0, 1),
        ("layers.0.swiglu.output", 1, 0),
    ]


def test_a_tensor_is_transferred_once_to_a_device() -> None:
    plan = planned("argmax", "top_k", layers=1)
    assert transfers(plan) == [("head.output", 0, 1)]
    # Both layers' norms and residuals read the stream, which the first device makes.
    moved = transfers(planned("rms_norm", "linear"))
    assert len(moved) == len(set(moved))


def test_what_a_node_changes_in_place_goes_on_from_where_it_was_changed() -> None:
    plan = planned("rope_kv", layers=1)
    assert transfers(plan) == [
        ("layers.0.q.output", 0, 1),
        ("layers.0.k.output", 0, 1),
        ("layers.0.v.output", 0, 1),
        ("layers.0.attention.output", 1, 0),
    ]


def test_inputs_and_constants_are_not_transferred() -> None:
    for lacks in ("embed", "rms_norm", "linear", "rope_kv", "attention"):
        plan = planned(lacks)
        moved = [t.tensor for segment in plan.segments for t in segment.transfers]
        assert all(tensor.source is Source.NODE for tensor in moved)


def test_parameters_hold_every_input() -> None:
    plan = planned()
    sizes = {name: region.size for name, region in plan.parameters.regions.items()}
    assert sizes == {"query_start": 8, "kv_len": 4, "block_table": 12, "tokens": 4 * ROWS}


def test_outputs_know_their_device() -> None:
    assert planned("argmax").outputs == {"logits": 0, "argmax": 1, "best": 0, "candidates": 0}


def test_constants_and_states_are_listed_once_where_they_are_read() -> None:
    plan = planned("embed")
    assert [tensor.name for tensor in plan.constants_on(1)] == ["embedding"]
    names = [tensor.name for tensor in plan.constants_on(0)]
    assert len(names) == len(set(names)) == len(plan.graph.constants)
    assert [tensor.name for tensor in plan.states_on(0)] == ["cache0", "cache1"]
    assert plan.states_on(1) == []


def lives(plan: Plan, device: int) -> dict[Tensor, tuple[int, int]]:
    """When each root is touched on a device, from the segments alone; outputs to the end."""
    times: dict[Tensor, list[int]] = {}
    time = 0
    for segment in plan.segments:
        for transfer in segment.transfers:
            if device in (transfer.source, transfer.target):
                times.setdefault(plan.roots[transfer.tensor], []).append(time)
        for step in segment.steps:
            if segment.device == device:
                for tensor in (*step.node.inputs.values(), *step.node.outputs.values()):
                    times.setdefault(plan.roots[tensor], []).append(time)
            time += 1
    for name, tensor in plan.graph.outputs.items():
        if plan.outputs[name] == device:
            times[plan.roots[tensor]].append(time)
    return {
        root: (min(seen), max(seen)) for root, seen in times.items() if root.source is Source.NODE
    }


def check_arenas(plan: Plan) -> None:
    """No two tensors that live at the same time on a device share bytes there."""
    for device, arena in enumerate(plan.arenas):
        alive = lives(plan, device)
        assert alive.keys() == arena.regions.keys()
        for a, (a_first, a_last) in alive.items():
            for b, (b_first, b_last) in alive.items():
                if a is not b and a_first <= b_last and b_first <= a_last:
                    one, two = arena.regions[a], arena.regions[b]
                    apart = (
                        one.offset + one.size <= two.offset or two.offset + two.size <= one.offset
                    )
                    assert apart, f"{a} and {b} on {device}"


def test_tensors_that_live_together_share_no_memory() -> None:
    check_arenas(planned())
    for lacks in ("embed", "rms_norm", "linear", "rope_kv", "attention", "swiglu", "argmax"):
        check_arenas(planned(lacks))


def test_scratch_memory_lives_for_one_step() -> None:
    device = PlannedDevice(scratch=10_000)
    plan = make_plan(small_model(), [device], VerdictStore(None))
    arena = plan.arenas[0]
    times = {node: time for time, node in enumerate(plan.graph.nodes)}
    alive = lives(plan, 0)
    for node, time in times.items():
        own = arena.regions[node, "partial"]
        assert own.size == 10_000
        for root, (first, last) in alive.items():
            if first <= time <= last:
                other = arena.regions[root]
                assert (
                    own.offset + own.size <= other.offset or other.offset + other.size <= own.offset
                )
    assert arena.size < 2 * 10_000


def test_memory_is_reused() -> None:
    deep, shallow = planned(layers=8), planned(layers=2)
    assert deep.arenas[0].size == shallow.arenas[0].size


def test_outputs_are_not_overwritten() -> None:
    plan = planned()
    regions = [plan.arenas[0].regions[plan.roots[t]] for t in plan.graph.outputs.values()]
    regions.sort(key=lambda region: region.offset)
    for low, high in itertools.pairwise(regions):
        assert low.offset + low.size <= high.offset


def test_what_lives_in_the_memory_of_another_has_its_root() -> None:
    plan = planned()
    node: Node = next(n for n in plan.graph.nodes if n.name == "layers.1.rope_kv")
    assert plan.roots[node.outputs["rotated"]] is node.inputs["q"]
    assert plan.roots[node.outputs["written"]] is plan.graph.states["cache1"]


def test_explain() -> None:
    plan = planned("swiglu", layers=1)
    lines = explain(plan).splitlines()
    weights = sum(packed_bytes(t, plan.devices[0]) for t in plan.graph.constants.values())
    cache = packed_bytes(plan.graph.states["cache0"], plan.devices[0])
    assert lines[0] == (
        f"first: 14 dispatches, weights {format_bytes(weights)}, "
        f"KV cache {format_bytes(cache)}, activations {format_bytes(plan.arenas[0].size)}"
    )
    assert lines[1].startswith("other: 1 dispatches, weights 0 B, KV cache 0 B, activations ")
    assert lines[2] == ""
    header = lines[3]
    assert header.split("  ")[0] == "op"
    columns = ("op", "device", "kernel", "bytes", "result", "why not elsewhere")
    assert [header.find(column) for column in columns] == sorted(map(header.find, columns))
    assert len(lines) == 4 + len(plan.graph.nodes) + 3
    rows = {line.split()[0]: line for line in lines[4:]}
    table = format_bytes(packed_bytes(plan.graph.constants["embedding"], plan.devices[0]))
    size = f"f32[{ROWS}x{HIDDEN}]"
    assert rows["embed"].split() == ["embed", "first", "embed[f16]", *table.split(), size]
    swiglu = rows["layers.0.swiglu"]
    why = header.index("why not elsewhere")
    assert swiglu[why:] == "first: it has no kernel for swiglu"
    moved = next(n for n, line in enumerate(lines) if line.startswith("layers.0.gate.output"))
    assert "first → other" in lines[moved]
    assert "(transfer)" in lines[moved]
    assert "1.3 kB" in lines[moved]
    assert "layers.0.up.output" in lines[moved + 1]
    assert lines[moved + 2] == swiglu
    assert sum(bool(line[why:]) for line in lines[4:]) == 1


def test_names_of_fused_nodes_say_once_what_their_parts_share() -> None:
    device = PlannedDevice(fusions=["swiglu"])
    plan = make_plan(small_model(1), [device], VerdictStore(None))
    assert "layers.0.up+swiglu " in explain(plan)


def test_what_is_where_is_told_in_a_sentence() -> None:
    assert split_sentence(planned()) is None
    devices = [PlannedDevice("first"), PlannedDevice("other")]

    def sentence(first_layers: int, stream: bool) -> str | None:
        store, graph = VerdictStore(None), small_model(6)
        split = fit_split(
            lambda: graph, 6, devices, store, first_layers=first_layers, stream=stream
        )
        return split_sentence(make_plan(graph, devices, store, split=split))

    assert sentence(6, stream=False) is None
    assert sentence(2, stream=False) == (
        "Of 6 layers 2 on first and 4 on other; embedding on first, head on first."
    )
    layer = sum(packed_bytes(t, devices[0]) for t in own_constants(small_model(6))[0])
    assert sentence(2, stream=True) == (
        "2 of 6 layers are kept on first, 4 are streamed to it through 2 slots of "
        f"{format_bytes(2 * layer)} in all; "
        "embedding on first, head on first."
    )


def test_rows_hold_what_the_table_shows() -> None:
    plan = planned("swiglu", layers=1)
    rows = step_rows(plan)
    assert [row.op for row in rows if row.kernels] == [node.name for node in plan.graph.nodes]
    assert sum(row.device == "first → other" for row in rows) == 2
    assert [row.layers for row in device_rows(plan)] == [1, 0]
    assert [row.why_not for row in rows if row.why_not] == ["first: it has no kernel for swiglu"]
