"""Runs the cases of ops of a plan, and records what follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossinfer.core.progress import Progress, no_progress
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import Finding, VerdictStore
from crossinfer.verify.data import Random
from crossinfer.verify.pending import PlannedOp
from crossinfer.verify.planned import planned_case
from crossinfer.verify.runner import Outcome, findings, run_lowering


def verify_ops(
    device: Device,
    ops: Sequence[PlannedOp],
    store: VerdictStore,
    progress: Progress = no_progress,
    rng: Random | None = None,
) -> list[Outcome]:
    """Run a case for each op and record the verdicts. Ends early if the device is lost.

    An op that no case lowers to the same kernels for has no outcome and no verdict.
    """
    rng = np.random.default_rng() if rng is None else rng
    outcomes: list[Outcome] = []
    with store.attempt() as attempt:
        for number, op in enumerate(ops):
            shape = op.shape if op.is_exact else ""
            tried = [Finding(kernel, shape=shape) for kernel in op.lowering.kernel_names]
            attempt.note(store.note_of(device.info, tried))
            outcome = verify_op(device, op, rng, exact=op.is_exact)
            outcomes += [] if outcome is None else [outcome]
            progress("Verifying kernels", number + 1, len(ops))
            if device.lost is not None:
                break
    store.record_all(device.info, findings(outcomes))
    return outcomes


def verify_op(device: Device, op: PlannedOp, rng: Random, *, exact: bool) -> Outcome | None:
    """How the kernels of an op do on fresh inputs; None if no case has them.

    `exact`: at the plan's own shape, not at a smaller one.
    """
    planned = planned_case(device, op.op, op.inputs, op.lowering.kernel_names, exact=exact)
    if planned is None:
        return None
    return run_lowering(device, planned.case, planned.lowering, planned.case.make(rng))
