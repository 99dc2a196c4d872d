"""Graphs: tensors and the nodes that make them, in an order in which they can run."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping

from crossinfer.core.records import entity, record
from crossinfer.graph.op import Op
from crossinfer.hal.kernel import Operand


class Source(enum.Enum):
    """Where a tensor's contents come from."""

    INPUT = "input"
    """Written by the engine before each step."""
    CONSTANT = "constant"
    """Uploaded once: weights and tables."""
    STATE = "state"
    """Kept from step to step: the KV cache of a layer."""
    NODE = "node"
    """Made by a node of the graph."""


@entity
class Tensor:
    """A value in a graph. Compared by identity, never by contents."""

    name: str
    type: Operand
    source: Source

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@entity
class Node:
    """One op applied to tensors, by operand name."""

    name: str
    op: Op
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    layer: int | None = None
    """The model's layer that it belongs to, from 0; None before the first and after the last."""

    def updated(self) -> Mapping[str, str]:
        """Output operand → the input operand in whose memory it lives."""
        return _updates(type(self.op))

    def input_types(self) -> dict[str, Operand]:
        return {name: tensor.type for name, tensor in self.inputs.items()}

    def operand_types(self) -> dict[str, Operand]:
        """What a device needs for lowering: every operand's type, outputs in place left out."""
        updates = self.updated()
        made = {name: t.type for name, t in self.outputs.items() if name not in updates}
        return self.input_types() | made


@functools.cache
def _updates(op: type[Op]) -> Mapping[str, str]:
    return {rule.name: rule.updates for rule in op.outputs if rule.updates is not None}


@record
class Graph:
    """A step of a model for one bucket of sizes."""

    inputs: Mapping[str, Tensor]
    constants: Mapping[str, Tensor]
    states: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, Tensor]

    def consumers(self) -> dict[Tensor, list[Node]]:
        """The nodes that read each tensor, in order."""
        result: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.inputs.values():
                result.setdefault(tensor, []).append(node)
        return result
