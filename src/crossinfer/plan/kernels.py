"""Kernel selection: the first lowering that a device offers and that no verdict bars."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from crossinfer.graph.graph import Node
from crossinfer.graph.op import Op, Operands
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering, shape_text
from crossinfer.hal.verdicts import VerdictStore


class KernelSelector:
    """Chooses lowerings for nodes on a row of devices, and says why one has none."""

    def __init__(self, devices: Sequence[Device], verdicts: VerdictStore) -> None:
        self.devices = devices
        self._verdicts = verdicts
        # The layers of a model are alike, so most nodes have been asked for before.
        self._selected: dict[tuple[Hashable, ...], Lowering | None] = {}
        # Placement, fusion and plan ask for the same node; to compare its types takes longer.
        self._of_node: dict[tuple[Node, int], Lowering | None] = {}

    def select(self, node: Node, device: int) -> Lowering | None:
        """The best lowering of `node` on `devices[device]` whose kernels may be used."""
        known = node, device
        if known not in self._of_node:
            # Types by identity: those of a graph are one object where they are equal, and live as
            # long as the nodes that are remembered here.
            types = node.operand_types()
            key = (device, node.op, *types, *map(id, types.values()))
            if key not in self._selected:
                self._selected[key] = self._best(node.op, types, self.devices[device])
            self._of_node[known] = self._selected[key]
        return self._of_node[known]

    def _best(self, op: Op, types: Operands, device: Device) -> Lowering | None:
        shape = shape_text(types)
        for lowering in device.lower(op, types):
            barred = (
                self._verdicts.is_barred(device.info, k, shape) for k in lowering.kernel_names
            )
            if not any(barred):
                return lowering
        return None

    def why_not(self, node: Node, device: int) -> str:
        """Why `select` gives None."""
        chosen, types = self.devices[device], node.operand_types()
        nothing = chosen.refusal(node.op, types) or f"it has no kernel for {node.op.variant(types)}"
        return f"{chosen.info.name}: {'; '.join(self.barred(node, device)) or nothing}"

    def barred(self, node: Node, device: int) -> list[str]:
        """The kernels that verdicts keep `node` from, each with the reason."""
        chosen, types = self.devices[device], node.operand_types()
        shape = shape_text(types)
        return [
            f"{kernel} is barred{' at this shape' if verdict.shape else ''} "
            f"({verdict.reason.partition(chr(10))[0]})"
            for lowering in chosen.lower(node.op, types)
            for kernel in lowering.kernel_names
            if (verdict := self._verdicts.find(chosen.info, kernel, shape)) and not verdict.passed
        ]
