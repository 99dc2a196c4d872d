"""Builds a graph call by call; each call checks its op's shape rules at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import PlanError
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.graph import Graph, Node, Source, Tensor
from crossinfer.graph.op import Op
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand


class GraphBuilder:
    """Collects tensors and nodes.

    Names of nodes are prefixed by the current `scope`; they belong to the current `layer`.
    """

    def __init__(self) -> None:
        self._tensors: dict[Source, dict[str, Tensor]] = {source: {} for source in Source}
        self._nodes: list[Node] = []
        self._outputs: dict[str, Tensor] = {}
        # The layers of a model are alike: equal types are one object, and nodes that are like an
        # earlier one in op and types are not checked and inferred again.
        self._types: dict[Operand, Operand] = {}
        self._inferred: dict[tuple[object, ...], dict[str, Operand]] = {}
        self.scope = ""
        self.layer: int | None = None

    def input(self, name: str, shape: Sequence[int]) -> Tensor:
        """A table of int32 that the engine writes before each step."""
        return self._add(name, Operand(tuple(shape), DType.I32), Source.INPUT)

    def constant(
        self, name: str, shape: Sequence[int], storage: StorageType, role: Role = Role.WEIGHT
    ) -> Tensor:
        """A weight or table, uploaded once. Asking again for a name gives the same tensor."""
        found = self._tensors[Source.CONSTANT].get(name)
        if found is not None:
            return found
        return self._add(name, Operand(tuple(shape), storage, role), Source.CONSTANT)

    def state(self, name: str, shape: Sequence[int], dtype: DType) -> Tensor:
        """A KV cache [blocks, 2, Hkv, 16, D]."""
        return self._add(name, Operand(tuple(shape), dtype, Role.KV_CACHE), Source.STATE)

    def output(self, name: str, tensor: Tensor) -> None:
        """Name a tensor that the engine reads after the step. Raises PlanError."""
        if tensor.source is not Source.NODE:
            raise PlanError(f"The output {name} must be made by an op, but {tensor} is not.")
        if name in self._outputs:
            raise PlanError(f"The graph has two outputs of the name {name}.")
        self._outputs[name] = tensor

    def apply(self, name: str, op: Op, **inputs: Tensor | None) -> dict[str, Tensor]:
        """The outputs of `op`; inputs that are None are left out. Raises PlanError."""
        given = {operand: tensor for operand, tensor in inputs.items() if tensor is not None}
        name = f"{self.scope}{name}"
        key = (op, *given, *[id(tensor.type) for tensor in given.values()])
        made = self._inferred.get(key)
        if made is None:
            made = self._inferred[key] = self._infer(name, op, given)
        outputs = {
            operand: Tensor(f"{name}.{operand}", type_, Source.NODE)
            for operand, type_ in made.items()
        }
        self._nodes.append(Node(name, op, given, outputs, self.layer))
        return outputs

    def build(self) -> Graph:
        """The graph. Raises PlanError if a tensor is used after an op changed it in place."""
        graph = Graph(
            inputs=dict(self._tensors[Source.INPUT]),
            constants=dict(self._tensors[Source.CONSTANT]),
            states=dict(self._tensors[Source.STATE]),
            nodes=tuple(self._nodes),
            outputs=dict(self._outputs),
        )
        consumers = graph.consumers()
        for node in graph.nodes:
            for changed in node.updated().values():
                if consumers[node.inputs[changed]][-1] is not node:
                    raise PlanError(
                        f"{node.name} changes {node.inputs[changed].name} in place, "
                        "but a later node reads it."
                    )
        return graph

    def _infer(self, name: str, op: Op, given: Mapping[str, Tensor]) -> dict[str, Operand]:
        types = {operand: tensor.type for operand, tensor in given.items()}
        try:
            op.check(types)
            made = op.infer(types)
        except PlanError as error:
            raise PlanError(f"{name}: {error}") from None
        return {operand: self._types.setdefault(type_, type_) for operand, type_ in made.items()}

    def _add(self, name: str, type_: Operand, source: Source) -> Tensor:
        if name in self._tensors[source]:
            raise PlanError(f"The graph has two tensors of the name {name}.")
        tensor = Tensor(name, self._types.setdefault(type_, type_), source)
        self._tensors[source][name] = tensor
        return tensor
