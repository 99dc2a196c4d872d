"""Which kernel cost a device: those that were in flight, each tried alone at its shape."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from crossinfer.core.errors import DeviceError, DeviceLost
from crossinfer.core.records import record
from crossinfer.engine.verification import planned_op, steps_on
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.plan import Plan
from crossinfer.verify.pending import PlannedOp


@record
class Guilty:
    """Kernels that are not to run again at a shape."""

    kernels: tuple[str, ...]
    shape: str
    reason: str
    per_shape: bool
    """Whether other shapes are other kernels to the driver."""
    is_bound: bool
    """Whether it works on a KV cache, which lies on one device whatever the shape."""

    def __str__(self) -> str:
        return f"{' and '.join(dict.fromkeys(self.kernels))} at {self.shape}"


def suspects(plan: Plan, device: Device) -> list[PlannedOp]:
    """What was in flight on a device that is lost, alike ops once, in the order of the plan."""
    assert device.lost is not None, "only a lost device has suspects"
    labels = {run.label for run in device.lost.dispatches}
    if device not in plan.devices:
        return []
    steps = steps_on(plan, plan.devices.index(device))
    flying = [step for step in steps if step.node.name in labels]
    return list({id(step.lowering): planned_op(step) for step in flying}.values())


def only_one(loss: DeviceLost, ops: Sequence[PlannedOp]) -> Guilty | None:
    """The kernel and shape in flight, if there was one alone."""
    runs = {(run.kernel, run.shape) for run in loss.dispatches}
    if len(runs) != 1:
        return None
    ((kernel, shape),) = runs
    return _guilty((kernel,), shape, loss.sentence, ops)


def find_guilty(device: Device, ops: Sequence[PlannedOp]) -> Guilty | None:
    """The first op that fails when it runs alone at its own shape; the device may be lost then."""
    import numpy as np

    from crossinfer.verify.trial import verify_op  # nobody needs it until a device is lost

    rng = np.random.default_rng()
    for op in ops:
        outcome = None
        with contextlib.suppress(DeviceError):  # of what cannot be tried, nothing is known
            outcome = verify_op(device, op, rng, exact=True)
        if outcome is None and device.lost is not None:
            return None  # lost before a kernel ran; the next op would be blamed for it
        if outcome is not None and outcome.conclusive and not outcome.passed:
            return _guilty(outcome.kernels, op.shape, outcome.reason, [op])
    return None


def _guilty(kernels: tuple[str, ...], shape: str, reason: str, ops: Sequence[PlannedOp]) -> Guilty:
    is_bound = any(o.role is Role.KV_CACHE for op in ops for o in op.inputs.values())
    return Guilty(kernels, shape, reason, any(op.is_exact for op in ops), is_bound)


def bar(verdicts: VerdictStore, info: DeviceInfo, guilty: Guilty) -> None:
    """Keep plans from using the kernels at that shape, on this device and driver.

    A kernel that fails at a second shape is barred at all: each bucket of sizes has shapes of its
    own, and they would cost the device one after another. So is one that works on a KV cache, or
    the bucket that must do without would have its cache elsewhere than the others.
    """
    for kernel in dict.fromkeys(guilty.kernels):
        others = [s for s in verdicts.barred_shapes(info, kernel) if s != guilty.shape]
        everywhere = not guilty.per_shape and (guilty.is_bound or bool(others))
        verdicts.record(
            info,
            kernel,
            passed=False,
            reason=guilty.reason,
            shape="" if everywhere else guilty.shape,
        )
