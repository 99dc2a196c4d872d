"""The step: plans and records buckets of batches, and runs batches on the devices."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import OutOfDeviceMemory
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.records import record
from crossinfer.core.settings import read_settings
from crossinfer.engine.batch import Batch, BatchLimits
from crossinfer.engine.buckets import step_shape
from crossinfer.engine.recorded_plan import RecordedPlan, nothing_else
from crossinfer.engine.residents import Residents
from crossinfer.engine.verification import Verifier
from crossinfer.graph.graph import Graph
from crossinfer.hal.device import Device
from crossinfer.hal.timer import TimedKernel
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.decoder import StepShape
from crossinfer.models.model import Model
from crossinfer.plan.fit import fit_split
from crossinfer.plan.plan import Plan, make_plan

if TYPE_CHECKING:
    from crossinfer.engine.slices import SliceGate
    from crossinfer.plan.work import Work

# Recorded buckets kept at once; each holds activation memory.
_MAX_RECORDED = 16


@record
class StepResult:
    """What a step gave, one row for each row whose logits were wanted."""

    argmax: Array
    """int32 [R]; -1 where the logits hold NaN or infinities (see the op argmax)."""
    logits: Array | None
    """float32 [R, V], if they were asked for."""
    kernels: Sequence[TimedKernel] = ()
    """Device times, if they were asked for."""


class StepRunner:
    """Runs batches of one model on a row of devices, most preferred first.

    The first batch of a bucket is planned and recorded, later ones replay. Used by one thread, but
    for `plan` and `memory`, which any thread may ask for, also after the end, and where it is said.
    """

    def __init__(
        self,
        model: Model,
        devices: Sequence[Device],
        verdicts: VerdictStore,
        *,
        context: int,
        kv_blocks: int,
        kv_dtype: DType,
        limits: BatchLimits,
        first_layers: int | None = None,
        stream_layers: bool = False,
        verifier: Verifier | None = None,
        gate: SliceGate | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """Plans the smallest bucket and uploads the weights. Raises PlanError, DeviceError.

        A device that loads in the background may still be at it afterwards; `finish_loading` waits
        for it.

        `context` is the longest sequence, `kv_blocks` the size of the cache without the padding
        block. `first_layers` is how many layers the first device keeps (None: as many as fit);
        `stream_layers` has the others streamed to it, rather than given to the devices that follow.
        `verifier` looks at the kernels of each plan first; None trusts them. `gate` lets steps
        through in pieces. `progress` counts the kernels that are prepared, and bytes of weights.
        """
        self.limits = limits
        """The largest batch for which there is memory."""
        self._model = model
        self._devices = devices
        self._verdicts = verdicts
        self._verifier = verifier or Verifier(verdicts, enabled=False)
        self._gate = gate
        self._context = context
        self._kv_blocks = kv_blocks
        self._kv_dtype = kv_dtype
        self._residents = Residents(model)
        self._recorded: OrderedDict[StepShape, RecordedPlan] = OrderedDict()
        self._last: tuple[tuple[int, int, int], RecordedPlan] | None = None
        """The sizes of the last batch, and the bucket that ran it."""
        self._split = fit_split(
            lambda: model.graph(self._shape(limits.rows, limits.sequences, limits.logits_rows)),
            model.config.layers,
            devices,
            verdicts,
            first_layers=first_layers,
            stream=stream_layers,
        )
        self._trace_commands = read_settings().debug >= 3
        self._progress = progress
        smallest = self._shape(1, 1, 1)
        try:
            graph = model.graph(smallest)
            self._begin_loading(graph)
            self._plan = self._record(smallest, graph).plan
            if gate is not None:
                self._verify_all(limits.rows)
        except BaseException:
            self.close()  # the devices may be the caller's, who goes on with them
            raise
        self._progress = no_progress

    def finish_loading(self) -> None:
        """Wait for weights that are on their way; a step does it, too. After an error all is freed.

        Raises FormatError, which every later step raises at once, DeviceError, RequestError.
        """
        self._residents.check_accepted()
        if self._residents.coming is None:
            return
        try:
            self._residents.finish()
        except BaseException:
            self.close()
            raise

    def wait_for_weights(self) -> None:
        """As `finish_loading`, but from any thread, and without consequences."""
        coming = self._residents.coming
        if coming is not None:
            coming.wait()
        self._residents.check_accepted()

    def stop_loading(self) -> None:
        """From any thread, before the runner is closed: don't wait for weights any longer."""
        coming = self._residents.coming
        if coming is not None:
            coming.stop()

    @property
    def plan(self) -> Plan:
        """The plan of the bucket that ran last."""
        return self._plan

    def run(
        self,
        batch: Batch,
        *,
        want_logits: bool = True,
        timed: bool = False,
        meanwhile: Callable[[], None] = nothing_else,
    ) -> StepResult:
        """Run a step and wait for it. Raises PlanError, DeviceError, and as `finish_loading`.

        Logits are downloaded only if wanted; `timed` puts timestamps around every dispatch.
        `meanwhile` is called once a device is busy with the step; and before, if the bucket is yet
        to be planned or recorded, which takes as long as several steps.
        """
        self._residents.check_accepted()
        recorded = self._find(batch, meanwhile)
        self.finish_loading()
        self._plan = recorded.plan
        params = recorded.tables.fill(batch)
        kernels: list[TimedKernel] = []
        if timed:
            kernels = recorded.run_timed(params, meanwhile)
        else:
            recorded.run(params, meanwhile)
        rows = batch.logits_rows
        if rows == 0:
            return StepResult(np.zeros(0, np.int32), None, kernels)
        argmax = np.frombuffer(recorded.download("argmax", rows), np.int32)
        logits = None
        if want_logits:
            raw = recorded.download("logits", rows)
            logits = np.frombuffer(raw, np.float32).reshape(rows, -1)
        return StepResult(argmax, logits, kernels)

    def count_work(self) -> Work:
        """What a step has to do, with the weights as they lie on the devices."""
        from crossinfer.plan.work import count_work  # few ask

        return count_work(self._plan, self._residents.buffers)

    def memory(self) -> dict[str, int]:
        """Bytes on the devices: `weights` (tables, the slots of streamed layers, and what is still
        on its way included), `kv`, `activations`; and `streamed`, the bytes of streamed layers in
        the host's memory.

        As it was when a bucket was recorded last.
        """
        return self._memory

    def close(self) -> None:
        """Free everything on the devices, which stay open."""
        for recorded in self._recorded.values():
            recorded.free()
        self._residents.free()
        self._recorded.clear()
        self._last = None

    def _shape(self, rows: int, sequences: int, logits_rows: int) -> StepShape:
        return step_shape(
            rows=rows,
            sequences=sequences,
            logits_rows=logits_rows,
            context=self._context,
            kv_blocks=self._kv_blocks,
            kv_dtype=self._kv_dtype,
            device=self._devices[0],
        )

    def _find(self, batch: Batch, meanwhile: Callable[[], None]) -> RecordedPlan:
        sizes = (batch.rows, len(batch.chunks), batch.logits_rows)
        last = self._last
        if last is not None and last[0] == sizes:
            return last[1]
        shape = self._shape(*sizes)
        known = self._recorded.get(shape)
        if known is None or not known.is_recorded:
            meanwhile()
        if known is not None:
            self._recorded.move_to_end(shape)
            recorded = known
        else:
            self._last = None  # its bucket may be given up
            recorded = self._record(shape, self._model.graph(shape))
        self._last = sizes, recorded
        return recorded

    def _verify_all(self, most_rows: int) -> None:
        """Verify the kernels of every bucket now, since that can't be cut into slices later."""
        for shape in dict.fromkeys(self._shape(rows, 1, 1) for rows in range(1, most_rows + 1)):
            self._settled_plan(self._model.graph(shape))

    def _begin_loading(self, graph: Graph) -> None:
        """Start with the weights before there is a plan, where all of them go to one device."""
        device = self._devices[0]
        if len(self._devices) == 1 and device.loads_in_background and not self._split.streamed:
            self._residents.begin(graph, device, self._progress)

    def _settled_plan(self, graph: Graph) -> Plan:
        return self._verifier.settle(
            lambda: make_plan(
                graph,
                self._devices,
                self._verdicts,
                self._residents.state_devices,
                progress=self._progress,
                split=self._split,
            )
        )

    def _record(self, shape: StepShape, graph: Graph) -> RecordedPlan:
        plan = self._settled_plan(graph)
        self._residents.bring(plan, self._progress)
        self._forget(keep=_MAX_RECORDED - 1)
        try:
            recorded = self._recorded_plan(plan, shape)
        except OutOfDeviceMemory:
            if not self._recorded:
                raise
            self._forget(keep=0)  # recorded buckets are only a cache
            recorded = self._recorded_plan(plan, shape)
        self._recorded[shape] = recorded
        self._memory = self._measured()
        if self._trace_commands:
            self.finish_loading()
            print(f"commands of {shape}:\n{recorded.describe()}", file=sys.stderr)
        return recorded

    def _recorded_plan(self, plan: Plan, shape: StepShape) -> RecordedPlan:
        residents = self._residents
        return RecordedPlan(plan, shape, residents.buffers, residents.stream, self._gate)

    def _measured(self) -> dict[str, int]:
        activations = sum(recorded.size_in_bytes for recorded in self._recorded.values())
        return {**self._residents.memory(), "activations": activations}

    def _forget(self, keep: int) -> None:
        """Give up the buckets that were used longest ago."""
        while len(self._recorded) > keep:
            self._recorded.popitem(last=False)[1].free()
