"""The choice of a split: how many layers a device takes, and what happens to the others.

A step reads each weight once, so the first device should hold as many bytes of them as fit beside
its part of the KV cache and the activations, then the second device, and so on. Of the embedding
table a step reads a few rows: it gets only what nothing else needs. Layers go to the devices in
order; the head, which is the largest matrix of a small model, goes where it saves most.

Streaming keeps all layers on the first device, but the weights of the last ones come from the
host's memory for each step, through two slots that are as large as the largest such layer.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import PlanError
from crossinfer.core.shapes import format_bytes
from crossinfer.graph.graph import Graph, Source, Tensor
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Operand
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.layers import EMBEDDING, Split, count_layers, own_constants, sections, whole
from crossinfer.plan.memory import Arena, consecutive
from crossinfer.plan.placement import (
    by_preference,
    choose_device,
    node_groups,
    owned_tensors,
    packed_bytes,
)

SLOTS = 2
"""One is filled while the other is computed with."""

_ACTIVATIONS = Tensor("activations", Operand((1,), DType.I32), Source.INPUT)
"""Stands for what a device needs beside weights and KV cache as soon as it computes anything."""
_Owned = frozenset[tuple[int, Tensor]]
"""Constants, states and _ACTIVATIONS, each with the device that must have it."""


def choose_split(
    graph: Graph,
    selector: KernelSelector,
    activations: Sequence[int],
    *,
    first_layers: int | None = None,
    stream: bool = False,
) -> Split:
    """The split of a model among devices, most preferred first. Raises PlanError.

    `activations` are the bytes that each device needs beside weights and KV cache if it computes
    anything. `first_layers`: so many layers are kept on the first device, neither more nor less;
    None is as many as fit. `stream`: the other layers are streamed to the first device, rather than
    given to those that follow.
    """
    layers = count_layers(graph)
    if first_layers is not None and not 0 <= first_layers <= layers:
        raise PlanError(
            f"{first_layers} layers were asked for on {selector.devices[0].info.name}, and the "
            f"model has {layers}; give 0 to {layers}, or auto."
        )
    sizes = _Sizes(graph, selector, activations)
    if first_layers in (None, layers) and sizes.fits(whole(layers)):
        return whole(layers)
    choices = _streamed(sizes, first_layers) if stream else _divided(sizes, first_layers)
    best = max(choices, key=sizes.value, default=None)
    if best is None:
        raise PlanError(_why_nothing_fits(sizes, first_layers, stream))
    name = selector.devices[0].info.name
    kept = best.layers.count(0) - len(best.streamed)
    given = f"it was given {kept} of {layers} layers"
    full = f"{kept} of {layers} layers fill its memory"
    return dataclasses.replace(best, reason=f"{name}: {full if first_layers is None else given}")


def slot_arenas(graph: Graph, split: Split, device: Device) -> Mapping[int, Arena]:
    """Where the weights of each streamed layer lie in a slot of `device`, by tensor name."""
    owned = own_constants(graph) if split.streamed else {}
    return {
        layer: consecutive({t.name: packed_bytes(t, device) for t in owned.get(layer, ())})
        for layer in sorted(split.streamed)
    }


def slot_bytes(arenas: Mapping[int, Arena]) -> int:
    """What all slots take together."""
    return min(SLOTS, len(arenas)) * max((arena.size for arena in arenas.values()), default=0)


class _Sizes:
    """What each section needs on each device, and whether splits fit."""

    def __init__(self, graph: Graph, selector: KernelSelector, activations: Sequence[int]) -> None:
        self.devices = selector.devices
        self.layers = count_layers(graph)
        self.memory = [device.info.memory_bytes for device in selector.devices]
        self._activations = activations
        self._graph = graph
        self._selector = selector
        self._sections = sections(graph)
        self._groups = node_groups(graph)
        self._owned: dict[tuple[int, int], _Owned] = {}

    def owned(self, section: int, device: int) -> _Owned:
        """What a section must have, and where, if it is meant for `device`. Raises PlanError."""
        key = section, device
        if key not in self._owned:
            candidates = by_preference(device, len(self.devices))
            owned: set[tuple[int, Tensor]] = set()
            for group in self._groups:
                if self._sections[group[0]] == section:
                    where, _ = choose_device(group, candidates, self._selector)
                    owned.update((where, t) for t in (*owned_tensors(group), _ACTIVATIONS))
            self._owned[key] = frozenset(owned)
        return self._owned[key]

    def size(self, device: int, tensor: Tensor) -> int:
        """Bytes that a tensor takes on a device."""
        if tensor is _ACTIVATIONS:
            return self._activations[device]
        return packed_bytes(tensor, self.devices[device])

    def needed(self, split: Split) -> list[int]:
        """Bytes of each device that a split takes."""
        arenas = slot_arenas(self._graph, split, self.devices[0])
        coming = {name for arena in arenas.values() for name in arena.regions}
        resident = {
            (device, tensor)
            for section in range(EMBEDDING, self.layers + 1)
            for device, tensor in self.owned(section, split.device_of(section))
            if device != 0 or tensor.name not in coming
        }
        total = [0] * len(self.devices)
        for device, tensor in resident:
            total[device] += self.size(device, tensor)
        total[0] += slot_bytes(arenas)
        return total

    def fits(self, split: Split) -> bool:
        pairs = zip(self.needed(split), self.memory, strict=True)
        return all(memory is None or needed <= memory for needed, memory in pairs)

    def value(self, split: Split) -> tuple[Hashable, ...]:
        """Splits are better by this: bytes of weights that a step reads on each device."""
        read = [0] * len(self.devices)
        for section in range(self.layers + 1):
            if section in split.streamed:
                continue
            for device, tensor in self.owned(section, split.device_of(section)):
                if tensor.source is Source.CONSTANT:
                    read[device] += packed_bytes(tensor, self.devices[device])
        return (*read[:-1], -split.head, -split.embedding)


def _divided(sizes: _Sizes, first_layers: int | None) -> Iterator[Split]:
    """The splits that fit, for each place of embedding and head the one with most layers first."""
    devices = range(len(sizes.devices))
    for embedding, head in itertools.product(devices, devices):
        layers = _fill(sizes, embedding, head, first_layers)
        if layers is not None:
            yield Split(embedding, layers, head)


def _fill(
    sizes: _Sizes, embedding: int, head: int, first_layers: int | None
) -> tuple[int, ...] | None:
    """A device for each layer, each as early in the row as fits; None if one fits nowhere."""
    used = _Used(sizes)
    outer = sizes.owned(EMBEDDING, embedding) | sizes.owned(sizes.layers, head)
    if not used.take(outer):
        return None
    chosen: list[int] = []
    device = 0
    for layer in range(sizes.layers):
        if layer == first_layers:
            device = max(device, 1)
        while device < len(sizes.devices) and not used.take(sizes.owned(layer, device)):
            device += 1
        if device == len(sizes.devices) or (layer < (first_layers or 0) and device > 0):
            return None
        chosen.append(device)
    return tuple(chosen)


class _Used:
    """Memory taken so far; a tensor that is there already costs nothing."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = sizes
        self._left = list(sizes.memory)
        self._present: set[tuple[int, Tensor]] = set()

    def take(self, owned: _Owned) -> bool:
        """Take memory for all of `owned`, or none of it."""
        added = owned - self._present
        left = list(self._left)
        for device, tensor in added:
            free = left[device]
            if free is not None:
                left[device] = free - self._sizes.size(device, tensor)
        if any(free is not None and free < 0 for free in left):
            return False
        self._left = left
        self._present |= added
        return True


def _streamed(sizes: _Sizes, first_layers: int | None) -> Iterator[Split]:
    """The splits that fit with the last layers streamed, for each place of embedding and head."""
    devices = range(len(sizes.devices))
    kept = range(sizes.layers, -1, -1) if first_layers is None else (first_layers,)
    for embedding, head in itertools.product(devices, devices):
        split = Split(embedding, (0,) * sizes.layers, head)
        yield from itertools.islice(_fitting(sizes, split, kept), 1)


def _fitting(sizes: _Sizes, split: Split, kept: Iterable[int]) -> Iterator[Split]:
    for count in kept:
        streamed = frozenset(range(count, sizes.layers))
        found = dataclasses.replace(split, streamed=streamed)
        if sizes.fits(found):
            yield found


def _why_nothing_fits(sizes: _Sizes, first_layers: int | None, stream: bool) -> str:
    devices, layers = sizes.devices, sizes.layers
    first, last = devices[0].info.name, len(devices) - 1
    example = "vulkan,cpu" if first == "cpu" else f"{first},cpu"
    if last == 0 and first_layers not in (None, layers) and not stream:
        return (
            f"{first_layers} of the model's {layers} layers were asked for on {first}, and no "
            f"device was named for the others; name one, as in {example}, or have them streamed."
        )
    kept = (0 if stream else layers) if first_layers is None else first_layers
    if stream:
        tried = Split(last, (0,) * layers, last, frozenset(range(kept, layers)))
        what = f"the model with {kept} of its {layers} layers kept and the others streamed"
    else:
        tried = Split(last, (0,) * kept + (last,) * (layers - kept), last)
        what = "the model" if kept == layers else f"{kept} of the model's {layers} layers"
    needs = "; ".join(
        f"{device.info.name} needs {format_bytes(needed)} and has {format_bytes(memory)}"
        for device, needed, memory in zip(devices, sizes.needed(tried), sizes.memory, strict=True)
        if memory is not None
    )
    ways = ["use a smaller context", "a smaller model"]
    if not stream:
        ways.insert(0, "have layers streamed")
    if last == 0:
        ways.insert(0, f"name a second device for the rest, as in {example}")
    if first_layers:
        ways.insert(0, f"ask for fewer layers on {first}")
    return (
        f"There is no room for {what} with KV cache and activations: {needs}. "
        f"{', '.join(ways)[0].upper()}{', '.join(ways[:-1])[1:]} or {ways[-1]}."
    )
