"""The plan: segments of nodes on devices, transfers between them, and where each tensor lies."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

from crossinfer.core.errors import PlanError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.records import record
from crossinfer.graph.graph import Graph, Node, Source, Tensor
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.fusion import fuse
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.layers import Split, count_layers, whole
from crossinfer.plan.memory import Arena, Interval, consecutive, pack, pack_apart
from crossinfer.plan.placement import Placed, place, storage_roots
from crossinfer.plan.split import slot_arenas


@record
class Step:
    """A node and how its device runs it; `reason` says why it is not on the first device."""

    node: Node
    lowering: Lowering
    reason: str = ""


@record
class Transfer:
    """An activation that goes from one device to another through the host."""

    tensor: Tensor
    source: int
    target: int


@record
class Segment:
    """Consecutive steps of one device: one recording. The transfers come before it.

    `streamed` is the layer whose weights must have come before it runs, if they are streamed.
    """

    device: int
    transfers: tuple[Transfer, ...]
    steps: tuple[Step, ...]
    streamed: int | None = None


@record
class Plan:
    """How a graph runs on a row of devices; devices are meant by their position in the row."""

    graph: Graph
    devices: tuple[Device, ...]
    segments: tuple[Segment, ...]
    arenas: tuple[Arena, ...]
    """Activation memory of each device, by storage root or (node, scratch name)."""
    parameters: Arena
    """The parameter buffer, the same on each device, by input name."""
    roots: Mapping[Tensor, Tensor]
    outputs: Mapping[str, int]
    """The device that holds each output."""
    split: Split
    slots: Mapping[int, Arena]
    """Where the weights of each streamed layer lie in its slot on the first device, by name."""

    def constants_on(self, device: int) -> list[Tensor]:
        """The constants that a device keeps for its nodes, each once, in order."""
        coming = {name for arena in self.slots.values() for name in arena.regions}
        kept = self._owned(device, Source.CONSTANT)
        return [tensor for tensor in kept if device != 0 or tensor.name not in coming]

    def states_on(self, device: int) -> list[Tensor]:
        return self._owned(device, Source.STATE)

    def _owned(self, device: int, source: Source) -> list[Tensor]:
        tensors = (
            tensor
            for segment in self.segments
            if segment.device == device
            for step in segment.steps
            for tensor in step.node.inputs.values()
            if tensor.source is source
        )
        return list(dict.fromkeys(tensors))


def make_plan(
    graph: Graph,
    devices: Sequence[Device],
    verdicts: VerdictStore,
    pinned: Mapping[str, int] | None = None,
    progress: Progress = no_progress,
    *,
    split: Split | None = None,
) -> Plan:
    """The plan for `graph` on `devices`, most preferred first. Raises PlanError.

    `pinned` gives the devices (positions in the row) of states that exist already. `split` says
    where the layers go (see `plan.fit`); None means all of them for the first device. `progress`
    counts nodes: a device may have to compile their kernels.
    """
    if not devices:
        raise PlanError("No device was given to plan for.")
    selector = KernelSelector(devices, verdicts)
    if split is None:
        split = whole(count_layers(graph))
    slots = slot_arenas(graph, split, devices[0])
    placed = place(graph, selector, split, pinned or {}, progress)
    graph, placed = fuse(graph, placed, selector)
    steps = [
        Step(node, _lowering(selector, node, p.device), p.reason) for node, p in placed.items()
    ]
    roots = storage_roots(graph)
    segments = _segments(steps, placed, split.streamed)
    outputs = {
        name: next(p.device for node, p in placed.items() if tensor in node.outputs.values())
        for name, tensor in graph.outputs.items()
    }
    return Plan(
        graph=graph,
        devices=tuple(devices),
        segments=segments,
        arenas=_arenas(segments, roots, graph, devices),
        parameters=consecutive(
            {name: t.type.storage.bytes_for(t.type.shape) for name, t in graph.inputs.items()}
        ),
        roots=roots,
        outputs=outputs,
        split=split,
        slots=slots,
    )


def _lowering(selector: KernelSelector, node: Node, device: int) -> Lowering:
    lowering = selector.select(node, device)
    if lowering is None:  # placement and fusion chose it a moment ago
        raise PlanError(f"{node.name}: {selector.why_not(node, device)}.")
    return lowering


def _segments(
    steps: Sequence[Step], placed: Mapping[Node, Placed], streamed: frozenset[int]
) -> tuple[Segment, ...]:
    def run_of(step: Step) -> tuple[int, int | None]:
        """The device, and on the first one the layer, if it is streamed."""
        device, _, section = placed[step.node]
        return device, section if device == 0 and section in streamed else None

    segments: list[Segment] = []
    home: dict[Tensor, int] = {}
    present: set[tuple[Tensor, int]] = set()
    for (device, layer), run in itertools.groupby(steps, key=run_of):
        members = tuple(run)
        transfers = []
        for step in members:
            for tensor in step.node.inputs.values():
                if tensor.source is Source.NODE and (tensor, device) not in present:
                    transfers.append(Transfer(tensor, home[tensor], device))
                    present.add((tensor, device))
            for tensor in step.node.outputs.values():
                home[tensor] = device
                present.add((tensor, device))
        segments.append(Segment(device, tuple(transfers), members, layer))
    return tuple(segments)


def _arenas(
    segments: Sequence[Segment],
    roots: Mapping[Tensor, Tensor],
    graph: Graph,
    devices: Sequence[Device],
) -> tuple[Arena, ...]:
    """Each device's activations packed by their lives, counted in nodes of the whole plan."""
    lives: list[dict[Tensor, tuple[int, int]]] = [{} for _ in devices]
    scratch: list[list[Interval]] = [[] for _ in devices]

    def touch(device: int, tensor: Tensor, time: int) -> None:
        root = roots[tensor]
        if root.source is Source.NODE:
            first, last = lives[device].get(root, (time, time))
            lives[device][root] = (min(first, time), max(last, time))

    time = 0
    for segment in segments:
        for transfer in segment.transfers:
            touch(transfer.source, transfer.tensor, time)
            touch(transfer.target, transfer.tensor, time)
        for step in segment.steps:
            for tensor in (*step.node.inputs.values(), *step.node.outputs.values()):
                touch(segment.device, tensor, time)
            for name, size in step.lowering.scratch.items():
                key: Hashable = (step.node, name)
                scratch[segment.device].append(Interval(key, size, time, time))
            time += 1
    for tensor in graph.outputs.values():
        for device in range(len(devices)):
            if roots[tensor] in lives[device]:
                touch(device, tensor, time)
    return tuple(
        (pack_apart if devices[device].one_access_per_buffer else pack)(
            [
                Interval(root, root.type.storage.bytes_for(root.type.shape), first, last)
                for root, (first, last) in lives[device].items()
            ]
            + scratch[device]
        )
        for device in range(len(devices))
    )
