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
    """`lacks` names kernels.

    A linear with a gate has one of its own, `linear_of_gate[…]`, an op that folds a norm `norm_…`.
    """

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
        name = op.name
        if name == "linear" and "gate" in operands:
            name = "linear_of_gate"
        if "norm_weight" in operands:
            name = f"norm_{name}"
        if name in self._lacks:
            return ()
        kernel = Kernel(f"{name}{op.variant(operands).removeprefix(op.name)}", None)
        return (Lowering((LoweredDispatch(kernel, op.arguments(operands)),), self._scratch),)
