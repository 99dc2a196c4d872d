"""Placement: which device runs each node.

A node goes to the device that the split gives its layer, or to the first other one in order of
preference that has a kernel for it; nodes that share a KV cache go together. A cache that was
placed before (for another bucket of the same model) stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from crossinfer.core.errors import PlanError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.shapes import align_up
from crossinfer.graph.graph import Graph, Node, Source, Tensor
from crossinfer.hal.buffer import VIEW_ALIGNMENT
from crossinfer.hal.device import Device
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.layers import Split, sections


class Placed(NamedTuple):
    """The device of a node, why it is not one that is preferred to it, and its section."""

    device: int
    reason: str = ""
    section: int = 0


def place(
    graph: Graph,
    selector: KernelSelector,
    split: Split,
    pinned: Mapping[str, int],
    progress: Progress = no_progress,
) -> dict[Node, Placed]:
    """Where each node goes. Raises PlanError.

    `pinned` gives the devices of states (by name) that exist already.
    """
    section_of = sections(graph)
    placed: dict[Node, Placed] = {}
    for group in node_groups(graph):
        section = section_of[group[0]]
        wanted, fixed = split.device_of(section), _pinned_device(group, pinned)
        candidates = by_preference(wanted, len(selector.devices)) if fixed is None else [fixed]
        device, skipped = choose_device(group, candidates, selector)
        if wanted != 0 and fixed is None:
            skipped.insert(0, split.reason)
        reason = "; ".join(filter(None, skipped))
        placed.update((node, Placed(device, reason, section_of[node])) for node in group)
        progress("Preparing kernels", len(placed), len(graph.nodes))
    return {node: placed[node] for node in graph.nodes}


def by_preference(wanted: int, devices: int) -> list[int]:
    """`wanted`, then the others in order."""
    return [wanted, *(device for device in range(devices) if device != wanted)]


def choose_device(
    group: Sequence[Node], candidates: Iterable[int], selector: KernelSelector
) -> tuple[int, list[str]]:
    """The first candidate with kernels for all nodes, and why not those before it.

    Raises PlanError.
    """
    skipped: list[str] = []
    ways = ["Add a device, such as cpu"]
    for device in candidates:
        missing = next((node for node in group if selector.select(node, device) is None), None)
        if missing is None:
            return device, skipped
        skipped.append(selector.why_not(missing, device))
        if selector.barred(missing, device):
            name = selector.devices[device].info.name
            ways.append(
                f"have what is barred tried again: `crossinfer verify --device {name} --forget`"
            )
    raise PlanError(
        f"No device can run {' and '.join(node.name for node in group)}. {'. '.join(skipped)}. "
        f"{', or '.join(ways)}."
    )


def _pinned_device(group: Sequence[Node], pinned: Mapping[str, int]) -> int | None:
    if not pinned:
        return None
    states = (tensor.name for tensor in owned_tensors(group) if tensor.source is Source.STATE)
    return next((pinned[name] for name in states if name in pinned), None)


def node_groups(graph: Graph) -> list[list[Node]]:
    """The nodes in order, those that touch one state together."""
    groups: list[list[Node]] = []
    by_state: dict[Tensor, list[Node]] = {}
    state_of = {t: r for t, r in storage_roots(graph).items() if r.source is Source.STATE}
    for node in graph.nodes:
        tensors = (*node.inputs.values(), *node.outputs.values())
        states = {state_of[t] for t in tensors if t in state_of}
        known = [by_state[state] for state in states if state in by_state]
        group = known[0] if known else []
        if not known:
            groups.append(group)
        group.append(node)
        for state in states:
            by_state[state] = group
    return groups


def storage_roots(graph: Graph) -> dict[Tensor, Tensor]:
    """The tensor in whose memory each tensor lives: itself, unless an op made it in place."""
    roots = {
        tensor: tensor
        for group in (graph.inputs, graph.constants, graph.states)
        for tensor in group.values()
    }
    for node in graph.nodes:
        updates = node.updated()
        for name, tensor in node.outputs.items():
            roots[tensor] = roots[node.inputs[updates[name]]] if name in updates else tensor
    return roots


def owned_tensors(group: Sequence[Node]) -> dict[Tensor, None]:
    """The tensors that must be on the nodes' device from the start, each once, in order."""
    inputs = (tensor for node in group for tensor in node.inputs.values())
    return {t: None for t in inputs if t.source in (Source.CONSTANT, Source.STATE)}


def packed_bytes(tensor: Tensor, device: Device) -> int:
    """Bytes that a tensor's buffer takes on a device."""
    size = device.packed_size(tensor.type.shape, tensor.type.storage, tensor.type.role)
    return align_up(size, VIEW_ALIGNMENT)
