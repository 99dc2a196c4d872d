"""Plans whose kernels have been seen to compute what they should, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crossinfer.core.progress import Progress, no_progress
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceKind
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.plan import Plan, Step
from crossinfer.verify.pending import PlannedOp, unverified

# The reference is what others are compared with; a simulated device is the same on every machine.
_TRUSTED = (DeviceKind.REFERENCE, DeviceKind.SIMULATED)


class Verifier:
    """Verifies the kernels of plans that have no verdict yet. Used by one thread at a time."""

    def __init__(
        self, verdicts: VerdictStore, *, enabled: bool = True, progress: Progress = no_progress
    ) -> None:
        """`progress` counts the kernels of a plan that are new here."""
        self.progress = progress
        self._verdicts = verdicts
        self._enabled = enabled
        self._news: list[str] = []

    def settle(self, make: Callable[[], Plan]) -> Plan:
        """A plan that `make` gives and whose kernels all passed.

        Each failure is recorded, and `make` is asked again, who must plan around it. A kernel that
        the device has no memory to try is used without. Raises what `make` raises, and DeviceLost
        if a kernel cost a device; its verdict is recorded then too.
        """
        while True:
            plan = make()
            if not self._enabled or not self._find_failures(plan):
                return plan

    def take_news(self) -> list[str]:
        """What was barred since the last call, in sentences."""
        news, self._news = self._news, []
        return news

    def _find_failures(self, plan: Plan) -> bool:
        failed = False
        for number, device in enumerate(plan.devices):
            if device.info.kind in _TRUSTED:
                continue
            # Layers are alike, and their nodes are lowered once.
            steps = {id(step.lowering): step for step in steps_on(plan, number)}
            ops = [planned_op(step) for step in steps.values()]
            failed |= self._verify(device, unverified(device, ops, self._verdicts))
        return failed

    def _verify(self, device: Device, ops: list[PlannedOp]) -> bool:
        if not ops:
            return False
        from crossinfer.verify.trial import verify_ops  # a start that knows all does without

        outcomes = verify_ops(device, ops, self._verdicts, self.progress)
        failures = [o for o in outcomes if not o.passed and o.conclusive]
        for outcome in failures:
            kernels = " and ".join(dict.fromkeys(outcome.kernels))
            self._news.append(
                f"Device {device.info.name} does not run {kernels} as it should, so it is not "
                f"used there: {outcome.reason.splitlines()[0]}"
            )
        if device.lost is not None:
            raise device.lost
        return bool(failures)


def steps_on(plan: Plan, device: int) -> Iterator[Step]:
    """The steps of one device of the row."""
    for segment in plan.segments:
        if segment.device == device:
            yield from segment.steps


def planned_op(step: Step) -> PlannedOp:
    """A step of a plan as verification takes it."""
    return PlannedOp(step.node.op, step.node.input_types(), step.lowering)
