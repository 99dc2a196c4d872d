"""Placement: which device runs each node.

Devices are given in order of preference. A node goes to the first one that has a kernel for it and
memory left for its weights; nodes that share a KV cache go together. A cache that was placed before
(for another bucket of the same model) stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from crossinfer.core.errors import PlanError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.shapes import align_up, format_bytes
from crossinfer.graph.graph import Graph, Node, Source, Tensor
from crossinfer.hal.buffer import VIEW_ALIGNMENT
from crossinfer.hal.device import Device
from crossinfer.plan.kernels import KernelSelector


class Placed(NamedTuple):
    """The device of a node, and why it is not one that is preferred to it."""

    device: int
    reason: str = ""


def place(
    graph: Graph,
    selector: KernelSelector,
    pinned: Mapping[str, int],
    reserved_bytes: int = 0,
    progress: Progress = no_progress,
) -> dict[Node, Placed]:
    """Where each node goes.

    `pinned` gives the devices of states (by name) that exist already; they and the constants beside
    them have their memory before anything else. `reserved_bytes` of each device are left free.
    Raises PlanError.
    """
    budget = _Budget(selector.devices, reserved_bytes)
    groups = _groups(graph)
    fixed = [_pinned_device(group, pinned) for group in groups]
    for group, device in zip(groups, fixed, strict=True):
        if device is not None:
            budget.reserve(device, _owned(group))
    placed: dict[Node, Placed] = {}
    for group, device in zip(groups, fixed, strict=True):
        candidates = range(len(selector.devices)) if device is None else (device,)
        chosen = _choose(group, candidates, selector, budget)
        placed.update((node, chosen) for node in group)
        progress("Preparing kernels", len(placed), len(graph.nodes))
    return placed


def _pinned_device(group: Sequence[Node], pinned: Mapping[str, int]) -> int | None:
    states = (tensor.name for tensor in _owned(group) if tensor.source is Source.STATE)
    return next((pinned[name] for name in states if name in pinned), None)


def _choose(
    group: Sequence[Node],
    candidates: Iterable[int],
    selector: KernelSelector,
    budget: _Budget,
) -> Placed:
    tensors = _owned(group)
    skipped = []
    for device in candidates:
        missing = [node for node in group if selector.select(node, device) is None]
        if missing:
            skipped.append(selector.why_not(missing[0], device))
            continue
        if not budget.fits(device, tensors):
            skipped.append(budget.why_not(device, tensors))
            continue
        budget.reserve(device, tensors)
        return Placed(device, "; ".join(skipped))
    raise PlanError(
        f"No device can run {' and '.join(node.name for node in group)}. {'. '.join(skipped)}. "
        "Add a device, or use a smaller model."
    )


def _groups(graph: Graph) -> list[list[Node]]:
    """The nodes in order, those that touch one state together."""
    groups: list[list[Node]] = []
    by_state: dict[Tensor, list[Node]] = {}
    roots = storage_roots(graph)
    for node in graph.nodes:
        tensors = (*node.inputs.values(), *node.outputs.values())
        states = {roots[t] for t in tensors if roots[t].source is Source.STATE}
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


def _owned(group: Sequence[Node]) -> dict[Tensor, None]:
    """The tensors that must be on the nodes' device from the start, each once, in order."""
    inputs = (tensor for node in group for tensor in node.inputs.values())
    return {t: None for t in inputs if t.source in (Source.CONSTANT, Source.STATE)}


def packed_bytes(tensor: Tensor, device: Device) -> int:
    """Bytes that a tensor's buffer takes on a device."""
    size = device.packed_size(tensor.type.shape, tensor.type.storage, tensor.type.role)
    return align_up(size, VIEW_ALIGNMENT)


class _Budget:
    """Memory of each device, taken by constants and states once each."""

    def __init__(self, devices: Sequence[Device], reserved_bytes: int) -> None:
        self._devices = devices
        memory = [device.info.memory_bytes for device in devices]
        self._left = [None if size is None else size - reserved_bytes for size in memory]
        self._resident: set[tuple[int, Tensor]] = set()

    def _needed(self, device: int, tensors: Iterable[Tensor]) -> int:
        return sum(
            packed_bytes(tensor, self._devices[device])
            for tensor in tensors
            if (device, tensor) not in self._resident
        )

    def fits(self, device: int, tensors: Iterable[Tensor]) -> bool:
        left = self._left[device]
        return left is None or self._needed(device, tensors) <= left

    def reserve(self, device: int, tensors: Iterable[Tensor]) -> None:
        left = self._left[device]
        if left is not None:
            self._left[device] = max(0, left - self._needed(device, tensors))
        self._resident.update((device, tensor) for tensor in tensors)

    def why_not(self, device: int, tensors: Iterable[Tensor]) -> str:
        needed, left = self._needed(device, tensors), self._left[device] or 0
        return (
            f"{self._devices[device].info.name}: {format_bytes(needed)} are needed, "
            f"{format_bytes(left)} are left"
        )
