"""Kernel selection: the first lowering that a device offers and that no verdict bars."""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.graph.graph import Node
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering
from crossinfer.hal.verdicts import VerdictStore


class KernelSelector:
    """Chooses lowerings for nodes on a row of devices, and says why one has none."""

    def __init__(self, devices: Sequence[Device], verdicts: VerdictStore) -> None:
        self.devices = devices
        self._verdicts = verdicts

    def select(self, node: Node, device: int) -> Lowering | None:
        """The best lowering of `node` on `devices[device]` whose kernels may be used."""
        chosen = self.devices[device]
        for lowering in chosen.lower(node.op, node.operand_types()):
            if not any(self._verdicts.is_barred(chosen.info, k) for k in lowering.kernel_names):
                return lowering
        return None

    def why_not(self, node: Node, device: int) -> str:
        """Why `select` gives None."""
        chosen = self.devices[device]
        reasons = [
            f"{kernel} is barred ({verdict.reason})"
            for lowering in chosen.lower(node.op, node.operand_types())
            for kernel in lowering.kernel_names
            if (verdict := self._verdicts.find(chosen.info, kernel)) and not verdict.passed
        ]
        name = node.op.variant(node.operand_types())
        return f"{chosen.info.name}: {'; '.join(reasons) or f'it has no kernel for {name}'}"
