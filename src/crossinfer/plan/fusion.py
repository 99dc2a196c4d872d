"""Fusion: nodes that become one where the device says that it pays.

Each pattern looks at one node and gives the node that replaces it, together with the nodes that it
absorbs. A pattern is used only if the device has a kernel for the result. Patterns apply one after
another, so a later one sees what an earlier one made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from crossinfer.core.records import record
from crossinfer.graph.graph import Graph, Node, Source, Tensor
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.placement import Placed


@record
class Fused:
    """A node, the one whose place it takes, and the others that disappear into it."""

    node: Node
    place: Node
    absorbed: tuple[Node, ...]


@record
class _Links:
    """Who makes and who reads the tensors of a graph."""

    producers: Mapping[Tensor, Node]
    consumers: Mapping[Tensor, list[Node]]
    order: Mapping[Node, int]

    def linear(self, tensor: Tensor) -> Node | None:
        """The linear that makes a tensor, if it does nothing beside product and bias."""
        node = self.producers.get(tensor)
        if node is None or not isinstance(node.op, Linear):
            return None
        return None if {"gate", "residual"} & node.inputs.keys() else node

    def only_reader(self, tensor: Tensor) -> bool:
        return len(self.consumers[tensor]) == 1


def _gated_linear(node: Node, links: _Links) -> Fused | None:
    """swiglu(linear(x), linear(x)) → gated_linear(x): neither projection is stored."""
    if not isinstance(node.op, Swiglu):
        return None
    gate, up = (links.linear(node.inputs[name]) for name in ("gate", "up"))
    if gate is None or up is None or gate is up or gate.inputs["x"] is not up.inputs["x"]:
        return None
    if not all(links.only_reader(tensor) for tensor in node.inputs.values()):
        return None
    inputs = {"x": gate.inputs["x"], **_parameters(gate, "gate"), **_parameters(up, "up")}
    name = f"{gate.name}+{up.name}+{node.name}"
    return Fused(Node(name, GatedLinear(), inputs, node.outputs), node, (gate, up))


def _swiglu_into_linear(node: Node, links: _Links) -> Fused | None:
    """swiglu(gate, linear(x)) → linear(x, gate=gate): the up projection is never stored."""
    if not isinstance(node.op, Swiglu):
        return None
    up = links.linear(node.inputs["up"])
    if up is None or not links.only_reader(node.inputs["up"]):
        return None
    inputs = {**up.inputs, "gate": node.inputs["gate"]}
    return Fused(Node(f"{up.name}+{node.name}", up.op, inputs, node.outputs), node, (up,))


def _qkv_linear(node: Node, links: _Links) -> Fused | None:
    """The three linears of one x whose results, normalised or not, rope_kv takes.

    They run where the first of them stood: all that they read is there already.
    """
    if not isinstance(node.op, RopeKv):
        return None
    found: dict[str, Node] = {}
    for name in "qkv":
        tensor = node.inputs[name]
        norm = links.producers.get(tensor)
        if norm is not None and isinstance(norm.op, RmsNorm) and "residual" not in norm.inputs:
            tensor = norm.inputs["x"]
        linear = links.linear(tensor)
        if linear is None or linear in found.values():
            return None
        found[name] = linear
    q, k, v = found.values()
    if not (
        q.inputs["x"] is k.inputs["x"] is v.inputs["x"]
        and k.inputs["weight"].type.shape == v.inputs["weight"].type.shape
    ):
        return None
    parameters = {n: t for name in found for n, t in _parameters(found[name], name).items()}
    if any(tensor.source is not Source.CONSTANT for tensor in parameters.values()):
        return None
    first, *others = sorted(found.values(), key=links.order.__getitem__)
    outputs = {name: linear.outputs["output"] for name, linear in found.items()}
    made = Node(
        f"{q.name}+{k.name}+{v.name}", QkvLinear(), {"x": q.inputs["x"], **parameters}, outputs
    )
    return Fused(made, first, tuple(others))


def _norm(node: Node, links: _Links) -> Fused | None:
    """rms_norm of whole rows into the product that alone reads it."""
    if not isinstance(node.op, GatedLinear | QkvLinear) or node.op.eps is not None:
        return None
    norm = links.producers.get(node.inputs["x"])
    if norm is None or not isinstance(norm.op, RmsNorm) or "residual" in norm.inputs:
        return None
    x, weight = norm.inputs["x"], norm.inputs["weight"]
    if x.type.shape[1:] != weight.type.shape or not links.only_reader(node.inputs["x"]):
        return None
    op = dataclasses.replace(node.op, eps=norm.op.eps)
    inputs = {**node.inputs, "x": x, "norm_weight": weight}
    return Fused(Node(f"{norm.name}+{node.name}", op, inputs, node.outputs), node, (norm,))


def _rope_attention(node: Node, links: _Links) -> Fused | None:
    """attention(rope_kv(q, k, v)) → rope_attention(q, k, v): rotated queries are never stored."""
    if not isinstance(node.op, Attention):
        return None
    rope = links.producers.get(node.inputs["q"])
    if rope is None or not isinstance(rope.op, RopeKv):
        return None
    rotated, written = rope.outputs["rotated"], rope.outputs["written"]
    reads_it = node.inputs["q"] is rotated and node.inputs["cache"] is written
    if not reads_it or not links.only_reader(rotated) or not links.only_reader(written):
        return None
    op = RopeAttention(node.op.head_dim, node.op.scale, rope.op.interleaved, node.op.window)
    outputs = {**node.outputs, "written": written}
    made = Node(f"{rope.name}+{node.name}", op, rope.inputs, outputs)
    return Fused(made, node, (rope,))


def _parameters(linear: Node, name: str) -> dict[str, Tensor]:
    """weight and bias of a linear as operands of the op that absorbs it as `name`."""
    return {f"{name}_{n}": linear.inputs[n] for n in ("weight", "bias") if n in linear.inputs}


PATTERNS: dict[str, Callable[[Node, _Links], Fused | None]] = {
    "gated_linear": _gated_linear,
    "swiglu": _swiglu_into_linear,
    "qkv_linear": _qkv_linear,
    "norm": _norm,
    "rope_attention": _rope_attention,
}


def fuse(
    graph: Graph, placed: Mapping[Node, Placed], selector: KernelSelector
) -> tuple[Graph, dict[Node, Placed]]:
    """`graph` with the patterns applied that the nodes' devices offer, and its placement."""
    placed = dict(placed)
    for name, pattern in PATTERNS.items():
        if not any(name in device.fusions for device in selector.devices):
            continue
        links = _Links(
            producers={tensor: node for node in graph.nodes for tensor in node.outputs.values()},
            consumers=graph.consumers(),
            order={node: number for number, node in enumerate(graph.nodes)},
        )
        changed = {node.inputs[name] for node in graph.nodes for name in node.updated().values()}
        replaced: dict[Node, Node] = {}
        absorbed: set[Node] = set()
        for node in graph.nodes:
            device = placed[node].device
            if name not in selector.devices[device].fusions:
                continue
            fused = pattern(node, links)
            if (
                fused is None
                or _is_spread([node, fused.place, *fused.absorbed], placed)
                or _reads_too_late(fused, changed, links)
                or _hides_an_output(fused, graph)
                or selector.select(fused.node, device) is None
            ):
                continue
            replaced[fused.place] = fused.node
            absorbed.update(fused.absorbed)
            placed[fused.node] = placed[fused.place]
        nodes = tuple(replaced.get(node, node) for node in graph.nodes if node not in absorbed)
        graph = dataclasses.replace(graph, nodes=nodes)
    return graph, {node: placed[node] for node in graph.nodes}


def _is_spread(nodes: Sequence[Node], placed: Mapping[Node, Placed]) -> bool:
    """Whether they are on several devices, or in several layers, one of which may be streamed."""
    return len({(placed[node].device, placed[node].section) for node in nodes}) > 1


def _reads_too_late(fused: Fused, changed: set[Tensor], links: _Links) -> bool:
    """Whether an absorbed node would run later than it did, on what others change in place."""
    late = [n for n in fused.absorbed if links.order[n] < links.order[fused.place]]
    own = {node.inputs[name] for node in late for name in node.updated().values()}
    return any(t in changed and t not in own for node in late for t in node.inputs.values())


def _hides_an_output(fused: Fused, graph: Graph) -> bool:
    """Whether an output of the graph would no longer be made."""
    made = set(fused.node.outputs.values())
    lost = {t for node in fused.absorbed for t in node.outputs.values()} - made
    return not lost.isdisjoint(graph.outputs.values())
