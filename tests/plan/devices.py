"""Devices to plan for: no threads, no memory, and whatever gaps a test wants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from crossinfer.backends.null import NullDevice
from crossinfer.graph.op import Op
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import (
    Kernel,
    LoweredDispatch,
    Lowering,
    OpDescription,
    Operand,
)


class PlannedDevice(NullDevice):
    """`lacks` names kernels; a linear with a gate has a kernel of its own, `gated_linear[…]`."""

    def __init__(
        self,
        name: str = "first",
        *,
        lacks: Collection[str] = (),
        fusions: Collection[str] = (),
        memory_bytes: int | None = None,
        scratch: int | None = None,
    ) -> None:
        super().__init__()
        self.info = DeviceInfo(name, DeviceKind.SIMULATED, "", "1", memory_bytes)
        self.fusions = frozenset(fusions)
        self._lacks = frozenset(lacks)
        self._scratch = {} if scratch is None else {"partial": scratch}

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        assert isinstance(op, Op)
        gated = "gated_" if op.name == "linear" and "gate" in operands else ""
        if f"{gated}{op.name}" in self._lacks:
            return ()
        kernel = Kernel(f"{gated}{op.variant(operands)}", None)
        return (Lowering((LoweredDispatch(kernel, op.arguments(operands)),), self._scratch),)
