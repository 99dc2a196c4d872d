"""What of a plan is still to be verified.

Loads little, since every start asks; `trial` runs the cases where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable

from crossinfer.core.records import record
from crossinfer.graph.op import Op, Operands
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering, shape_text
from crossinfer.hal.verdicts import VerdictStore


@record
class PlannedOp:
    """An op of a plan: its inputs' types, and how the plan runs it."""

    op: Op
    inputs: Operands
    lowering: Lowering

    @property
    def shape(self) -> str:
        """See `hal.kernel.shape_text`; what a plan asks the verdicts for."""
        return shape_text({**self.inputs, **self.outputs})

    @property
    def outputs(self) -> Operands:
        """The types of the outputs that have memory of their own."""
        in_place = {rule.name for rule in self.op.outputs if rule.updates is not None}
        return {k: v for k, v in self.op.infer(self.inputs).items() if k not in in_place}

    @property
    def is_exact(self) -> bool:
        """Whether only its own shape tells something about its kernels."""
        return any(dispatch.kernel.per_shape for dispatch in self.lowering.dispatches)


def unverified(device: Device, ops: Iterable[PlannedOp], store: VerdictStore) -> list[PlannedOp]:
    """Of a device's ops those with a kernel that has no verdict yet; alike ones once."""
    pending: dict[tuple[tuple[str, ...], str], PlannedOp] = {}
    for op in ops:
        shape = op.shape
        names = op.lowering.kernel_names
        if not all(_has_verdict(device, op, store, shape, name) for name in names):
            pending.setdefault((names, shape if op.is_exact else ""), op)
    return list(pending.values())


def _has_verdict(
    device: Device, op: PlannedOp, store: VerdictStore, shape: str, kernel: str
) -> bool:
    verdict = store.find(device.info, kernel, shape)
    return verdict is not None and (bool(verdict.shape) or not op.is_exact)
