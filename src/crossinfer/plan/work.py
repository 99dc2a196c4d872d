"""What a step has to do at least, in bytes and operations: its speed is compared with limits."""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.core.records import record
from crossinfer.formats.activations import SHORT, ActivationBlocks
from crossinfer.graph.graph import Node, Source, Tensor
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.hal.buffer import Buffer, Role
from crossinfer.hal.kernel import Lowering
from crossinfer.hal.limits import Products
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan


@record
class Work:
    """Of matrix products and attention; everything else is small beside them. A multiplication and
    an addition are two operations.
    """

    weight_bytes: int
    """Read once in a step, as the devices keep them (see `Device.bytes_read`)."""
    row_operations: int
    """For each row of a step, the head left out."""
    head_operations: int
    """For each row whose logits are wanted."""
    pair_operations: int
    """For each query and each position that it attends to, over all layers."""
    position_bytes: int
    """Of the KV cache, read for each position that a query attends to."""
    products: Products
    """What most of the products multiply."""

    def prefill_operations(self, tokens: int) -> int:
        """Of a prompt of so many tokens, logits wanted of the last."""
        pairs = tokens * (tokens + 1) // 2
        return tokens * self.row_operations + self.head_operations + pairs * self.pair_operations

    def decode_bytes(self, positions: float) -> float:
        """Of one token that attends to so many positions."""
        return self.weight_bytes + positions * self.position_bytes


def count_work(plan: Plan, weights: Mapping[tuple[str, int], Buffer] | None = None) -> Work:
    """The work of a plan's steps; what depends on rows is counted for one.

    `weights` are those on the devices, by name and the device's number: sizes may depend on
    contents. Without, they count as what is allocated for them.
    """
    present = weights or {}
    products = dict.fromkeys(Products, 0)
    head = pair_operations = position_bytes = weight_bytes = 0
    results = set(plan.graph.outputs.values())
    for segment in plan.segments:
        device = plan.devices[segment.device]
        for step in segment.steps:
            matrices = _matrices(step.node)
            operations = sum(2 * tensor.type.shape[0] * tensor.type.shape[1] for tensor in matrices)
            products[_products(step.lowering)] += operations
            for tensor in matrices:
                buffer = present.get((tensor.name, segment.device))
                if buffer is None:
                    weight_bytes += packed_bytes(tensor, device)
                else:
                    kind = tensor.type
                    weight_bytes += device.bytes_read(buffer, kind.shape, kind.storage)
            if not results.isdisjoint(step.node.outputs.values()):
                head += operations
            if isinstance(step.node.op, Attention | RopeAttention):
                cache = step.node.inputs["cache"].type
                _, pair, kv_heads, _, head_dim = cache.shape
                width = step.node.inputs["q"].type.shape[1]
                pair_operations += 2 * 2 * width
                position_bytes += cache.storage.bytes_for((pair * kv_heads * head_dim,))
    return Work(
        weight_bytes=weight_bytes,
        row_operations=sum(products.values()) - head,
        head_operations=head,
        pair_operations=pair_operations,
        position_bytes=position_bytes,
        products=max(products, key=products.__getitem__),
    )


def _matrices(node: Node) -> list[Tensor]:
    """The weights that a node multiplies with."""
    if isinstance(node.op, Embed):
        return []
    return [
        tensor
        for tensor in node.inputs.values()
        if tensor.source is Source.CONSTANT
        and tensor.type.role is Role.WEIGHT
        and len(tensor.type.shape) == 2
    ]


def _products(lowering: Lowering) -> Products:
    """What its products multiply, by what becomes of x."""
    rounding = lowering.quantized.get("x")
    if isinstance(rounding, ActivationBlocks):
        return Products.INTEGER
    return Products.SHORT if rounding is SHORT else Products.FLOAT
