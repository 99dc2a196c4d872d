"""Recovery: when a device is lost, what ran on it is made again, and the engine goes on.

The device is opened again, or taken out of the row where that is impossible. Whoever lost it is
looked for among the kernels that were in flight (see `suspects`) and barred, so that no plan has it
any more. Weights are uploaded again from the mapped file. The KV cache is gone; the engine computes
it again from the tokens. A token depends on the tokens before it and on its position alone, so the
answer goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from crossinfer.core.errors import DeviceError, DeviceLost, OutOfDeviceMemory, PlanError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.engine.batch import Batch, BatchLimits
from crossinfer.engine.device_row import DeviceRow
from crossinfer.engine.recorded_plan import nothing_else
from crossinfer.engine.step import StepResult, StepRunner
from crossinfer.engine.verification import Verifier
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.plan import Plan
from crossinfer.verify.pending import PlannedOp

MOST_LOSSES = 3
"""Losses of a device within WITHIN_S after which it is opened again; one more, and it is not."""
WITHIN_S = 60.0

MakeRunner = Callable[[Sequence[Device], Progress], StepRunner]


class RecoverableRunner:
    """A StepRunner over a row of devices, both of which can be made again.

    Used by the engine's thread, but for `plan`, `reasons` and `memory`, and where it is said.
    """

    def __init__(
        self,
        row: DeviceRow,
        make_runner: MakeRunner,
        verdicts: VerdictStore,
        verifier: Verifier,
        progress: Progress = no_progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes over `row` and makes the runner; devices that are lost meanwhile are made again.

        `verifier` is that of the runners that `make_runner` makes. `progress` is told of the first
        one only: later ones are made in the middle of answers. Weights may still be on their way
        afterwards; `finish_loading` waits for them. Raises PlanError, DeviceError.
        """
        self._row = row
        self._make_runner = make_runner
        self._verdicts = verdicts
        self._verifier = verifier
        self._progress = progress
        self._clock = clock
        self._losses: dict[str, deque[float]] = {}
        self._unexplained: Counter[tuple[str, frozenset[str]]] = Counter()
        self._news: list[str] = []
        try:
            self._current = self._start(again=False)
        except BaseException:
            row.close()
            raise

    def finish_loading(self) -> None:
        """Have the first runner's weights on its devices; those lost meanwhile are made again.

        After an error everything is closed. Raises FormatError, PlanError, DeviceError.
        """
        try:
            try:
                self._current.finish_loading()
            except (DeviceLost, OutOfDeviceMemory) as error:
                self._cope(error, again=False)
                self._current = self._start(again=False, wait=True)
        except BaseException:
            self.close()
            raise
        self._end_progress()

    def wait_for_weights(self) -> None:
        """Wait for weights that are on their way; from any thread.

        A device that is lost meanwhile is made again by the next step. Raises FormatError,
        DeviceError, RequestError.
        """
        with contextlib.suppress(DeviceLost):
            self._current.wait_for_weights()

    def stop_loading(self) -> None:
        """See `StepRunner.stop_loading`."""
        self._current.stop_loading()

    @property
    def current(self) -> StepRunner:
        """The runner that is in use."""
        return self._current

    @property
    def plan(self) -> Plan:
        """See `StepRunner.plan`."""
        return self._current.plan

    @property
    def reasons(self) -> tuple[str, ...]:
        """See `DeviceRow`."""
        return self._row.reasons

    @property
    def limits(self) -> BatchLimits:
        """The largest batch that the runner in use has memory for."""
        return self._current.limits

    def memory(self) -> dict[str, int]:
        """See `StepRunner.memory`."""
        return self._current.memory()

    def run(
        self,
        batch: Batch,
        *,
        want_logits: bool = True,
        timed: bool = False,
        meanwhile: Callable[[], None] = nothing_else,
    ) -> StepResult:
        """See `StepRunner.run`. After an error that `can_recover`, recover from it."""
        try:
            return self._current.run(
                batch, want_logits=want_logits, timed=timed, meanwhile=meanwhile
            )
        finally:
            self._end_progress()

    def can_recover(self, error: Exception) -> bool:
        """Whether `recover` may help. It may not after a PlanError for the last device."""
        has_others = len(self._row.devices) > 1
        return isinstance(error, DeviceLost) or (isinstance(error, PlanError) and has_others)

    def recover(self, error: Exception) -> None:
        """Make again what is lost, or do without it. All KV caches are empty afterwards.

        A PlanError comes from a bucket that cannot be planned where the KV caches lie, since too
        many kernels are barred there. Raises DeviceLost where there is no way, and what making the
        runner raises.
        """
        plan = self.plan
        self._current.close()
        if isinstance(error, DeviceLost):
            self._handle(error, plan)
        else:
            with_cache = [d for n, d in enumerate(self._row.devices[:-1]) if plan.states_on(n)]
            self._news.append(str(error))
            self._drop((with_cache or self._row.devices)[0])
        self._current = self._start(again=True, wait=True)

    def take_news(self) -> list[str]:
        """What users should hear of since the last call, in sentences."""
        news, self._news = self._news + self._verifier.take_news(), []
        return news

    def close(self) -> None:
        """Release what runs, and close the devices that are ours."""
        try:
            self._current.close()
        finally:
            self._row.close()

    def _end_progress(self) -> None:
        """What is still to be made is made in the middle of answers."""
        self._progress = self._verifier.progress = no_progress

    def _start(self, *, again: bool, wait: bool = False) -> StepRunner:
        """A new runner, with its weights on the devices if `wait`.

        A device without memory for it is given up if it had it before, or if `auto` took it.
        """
        while True:
            try:
                runner = self._make_runner(self._row.devices, self._progress)
                if wait:
                    runner.finish_loading()
            except (DeviceLost, OutOfDeviceMemory) as error:
                self._cope(error, again=again)
            else:
                return runner

    def _cope(self, error: DeviceLost | OutOfDeviceMemory, *, again: bool) -> None:
        """After an error of making a runner: prepare another attempt, or raise the error."""
        if isinstance(error, DeviceLost):
            self._handle(error, None)
            return
        may_drop = again or self._row.may_start_without
        if not may_drop or len(self._row.devices) < 2:
            raise error
        self._news.append(str(error))
        self._drop(self._row.devices[0])

    def _handle(self, loss: DeviceLost, plan: Plan | None) -> None:
        """Open again what is lost, or drop it. `plan` is what ran, if a step did.

        Raises the loss if it explains no device, or none is left.
        """
        from crossinfer.engine.suspects import suspects  # only a loss needs it

        lost = [device for device in self._row.devices if device.lost is not None]
        if not lost:
            raise loss
        for device in lost:
            self._make_again(device, [] if plan is None else suspects(plan, device))
        if not self._row.devices:
            raise loss

    def _make_again(self, device: Device, ops: Sequence[PlannedOp]) -> None:
        from crossinfer.engine.suspects import bar, find_guilty, only_one

        loss, place = device.lost, self._row.devices.index(device)
        assert loss is not None
        self._news.append(loss.sentence)
        if self._is_hopeless(device.info.name) or not self._reopen(place):
            self._drop(device)
            return
        info = self._row.devices[place].info
        if any(self._verdicts.is_barred(info, run.kernel, run.shape) for run in loss.dispatches):
            return  # verification met it, and told
        guilty = find_guilty(self._row.devices[place], ops)
        if guilty is None:
            kernels = info.name, frozenset(loss.in_flight)
            self._unexplained[kernels] += 1
            if self._unexplained[kernels] > 1:  # or it would be lost again and again
                guilty = only_one(loss, ops)
                if guilty is None and len(self._row.devices) > 1:
                    self._drop(self._row.devices[place])
                    return
        if guilty is not None:
            bar(self._verdicts, info, guilty)
            self._news.append(f"From here on {guilty} is not used on device {info.name}.")
        if self._row.devices[place].lost is not None and not self._reopen(place):
            self._drop(self._row.devices[place])

    def _is_hopeless(self, name: str) -> bool:
        """Count a loss; whether there were too many of late."""
        now = self._clock()
        losses = self._losses.setdefault(name, deque())
        losses.append(now)
        while now - losses[0] > WITHIN_S:
            losses.popleft()
        return len(losses) > MOST_LOSSES

    def _reopen(self, place: int) -> bool:
        try:
            return self._row.reopen(self._row.devices[place])
        except DeviceError:
            return False

    def _drop(self, device: Device) -> None:
        self._row.drop(device)
        if self._row.devices:  # else the error says it
            self._news.append(f"Device {device.info.name} is not used any more.")
