"""Fusion: two nodes that become one where the device says that it pays.

Each pattern looks at one node and gives the node that replaces it, together with the nodes that it
absorbs. A pattern is used only if the device has a kernel for the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from crossinfer.graph.graph import Graph, Node, Tensor
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.placement import Placed


@dataclasses.dataclass(frozen=True)
class Fused:
    """The node that replaces another one, and the node that disappears into it."""

    node: Node
    absorbed: Node


Producers = Mapping[Tensor, Node]
Consumers = Mapping[Tensor, list[Node]]


def _swiglu_into_linear(node: Node, producers: Producers, consumers: Consumers) -> Fused | None:
    """swiglu(gate, linear(x)) → linear(x, gate=gate): the up projection is never stored."""
    if not isinstance(node.op, Swiglu):
        return None
    up = producers.get(node.inputs["up"])
    if up is None or not isinstance(up.op, Linear):
        return None
    if len(consumers[node.inputs["up"]]) != 1 or {"gate", "residual"} & up.inputs.keys():
        return None
    inputs = {**up.inputs, "gate": node.inputs["gate"]}
    return Fused(Node(f"{up.name}+{node.name}", up.op, inputs, node.outputs), up)


PATTERNS: dict[str, Callable[[Node, Producers, Consumers], Fused | None]] = {
    "swiglu": _swiglu_into_linear,
}


def fuse(
    graph: Graph, placed: Mapping[Node, Placed], selector: KernelSelector
) -> tuple[Graph, dict[Node, Placed]]:
    """`graph` with the patterns applied that the nodes' devices offer, and its placement."""
    placed = dict(placed)
    for name, pattern in PATTERNS.items():
        producers = {tensor: node for node in graph.nodes for tensor in node.outputs.values()}
        consumers = graph.consumers()
        changed = {node.inputs[name] for node in graph.nodes for name in node.updated().values()}
        replaced: dict[Node, Node] = {}
        absorbed: set[Node] = set()
        for node in graph.nodes:
            device = placed[node].device
            if name not in selector.devices[device].fusions:
                continue
            fused = pattern(node, producers, consumers)
            if (
                fused is None
                or placed[fused.absorbed].device != device
                or not changed.isdisjoint(fused.absorbed.inputs.values())  # it would read too late
                or any(t in graph.outputs.values() for t in fused.absorbed.outputs.values())
                or selector.select(fused.node, device) is None
            ):
                continue
            replaced[node] = fused.node
            absorbed.add(fused.absorbed)
            placed[fused.node] = placed[node]
        nodes = tuple(replaced.get(node, node) for node in graph.nodes if node not in absorbed)
        graph = dataclasses.replace(graph, nodes=nodes)
    return graph, {node: placed[node] for node in graph.nodes}
