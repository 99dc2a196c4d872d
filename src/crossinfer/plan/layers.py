"""Which device each layer of a model is meant for, and which layers are streamed to theirs."""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.core.records import record
from crossinfer.graph.graph import Graph, Node, Source, Tensor

EMBEDDING = -1
"""The section of the nodes before the first layer."""


@record
class Split:
    """The devices of a model's sections: what is before its layers, each layer, what is after them.

    A layer goes with its weights and its KV cache, so that only activations cross a border. Devices
    are meant by their position in the row. A node whose device lacks a kernel for it goes to
    another one all the same.
    """

    embedding: int
    layers: tuple[int, ...]
    """Ascending: each device has layers that follow each other."""
    head: int
    streamed: frozenset[int] = frozenset()
    """Layers on the first device whose weights are not kept there: they come for each step."""
    reason: str = ""
    """Why not everything is on the first device, if so."""

    def device_of(self, section: int) -> int:
        """The device of a layer, or of EMBEDDING; any other section is the head."""
        if section == EMBEDDING:
            return self.embedding
        return self.layers[section] if section < len(self.layers) else self.head


def whole(layers: int, device: int = 0) -> Split:
    """Everything on one device."""
    return Split(device, (device,) * layers, device)


def count_layers(graph: Graph) -> int:
    return 1 + max((node.layer for node in graph.nodes if node.layer is not None), default=-1)


def sections(graph: Graph) -> dict[Node, int]:
    """The section of each node: EMBEDDING, a layer, or the number of layers for the head.

    A graph without layers is all head.
    """
    head = count_layers(graph)
    current = EMBEDDING if head else 0
    result: dict[Node, int] = {}
    for node in graph.nodes:
        if node.layer is not None:
            current = head
        result[node] = current if node.layer is None else node.layer
    return result


def own_constants(graph: Graph) -> Mapping[int, tuple[Tensor, ...]]:
    """The constants that one section alone reads, by section, in order."""
    readers: dict[Tensor, set[int]] = {}
    for node, section in sections(graph).items():
        for tensor in node.inputs.values():
            if tensor.source is Source.CONSTANT:
                readers.setdefault(tensor, set()).add(section)
    owned: dict[int, list[Tensor]] = {}
    for tensor, found in readers.items():
        if len(found) == 1:
            owned.setdefault(min(found), []).append(tensor)
    return {section: tuple(tensors) for section, tensors in owned.items()}
