"""The step: owns weights, KV cache, parameters and recordings; runs a batch on the devices."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import OutOfDeviceMemory
from crossinfer.core.progress import Progress, no_progress
from crossinfer.core.settings import read_settings
from crossinfer.core.shapes import ceil_div
from crossinfer.engine.batch import Batch, BatchLimits
from crossinfer.engine.recorded_plan import RecordedPlan
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.graph import Tensor
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.hal.timer import TimedKernel
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.decoder import StepShape
from crossinfer.models.model import Model
from crossinfer.plan.plan import Plan, make_plan

# Recorded buckets kept at once; each holds activation memory.
_MAX_RECORDED = 16


@dataclasses.dataclass(frozen=True)
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
    for `plan` and `memory`, which any thread may ask for, also after the end.
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
        progress: Progress = no_progress,
    ) -> None:
        """Plans the smallest bucket and uploads the weights. Raises PlanError, DeviceError.

        `context` is the longest sequence, `kv_blocks` the size of the cache without the padding
        block. `progress` counts the kernels that are prepared, then bytes of weights.
        """
        self._model = model
        self._devices = devices
        self._verdicts = verdicts
        self._context = context
        self._kv_blocks = kv_blocks
        self._kv_dtype = kv_dtype
        self._resident: dict[tuple[str, int], Buffer] = {}
        self._state_devices: dict[str, int] = {}
        self._recorded: OrderedDict[StepShape, RecordedPlan] = OrderedDict()
        self._reserved_bytes = self._largest_activations(limits)
        self._trace_commands = read_settings().debug >= 3
        self._progress = progress
        try:
            self._plan = self._record(self._shape(1, 1, 1)).plan
        except BaseException:
            self.close()  # the devices may be the caller's, who goes on with them
            raise
        self._progress = no_progress

    @property
    def plan(self) -> Plan:
        """The plan of the bucket that ran last."""
        return self._plan

    def run(self, batch: Batch, *, want_logits: bool = True, timed: bool = False) -> StepResult:
        """Run a step and wait for it. Raises PlanError, DeviceError.

        Logits are downloaded only if wanted; `timed` puts timestamps around every dispatch.
        """
        recorded = self._find(batch)
        self._plan = recorded.plan
        params = batch.pack(recorded.shape, recorded.plan.parameters)
        kernels: list[TimedKernel] = []
        if timed:
            kernels = recorded.run_timed(params)
        else:
            recorded.run(params)
        rows = batch.logits_rows
        if rows == 0:
            return StepResult(np.zeros(0, np.int32), None, kernels)
        argmax = np.frombuffer(recorded.download("argmax", rows), np.int32)
        logits = None
        if want_logits:
            raw = recorded.download("logits", rows)
            logits = np.frombuffer(raw, np.float32).reshape(rows, -1)
        return StepResult(argmax, logits, kernels)

    def memory(self) -> dict[str, int]:
        """Bytes on the devices: `weights` (tables included), `kv`, `activations`.

        As it was when a bucket was recorded last.
        """
        return self._memory

    def close(self) -> None:
        """Free everything on the devices, which stay open."""
        for recorded in self._recorded.values():
            recorded.free()
        for buffer in self._resident.values():
            buffer.free()
        self._recorded.clear()
        self._resident.clear()

    def _shape(self, rows: int, sequences: int, logits_rows: int) -> StepShape:
        return step_shape(
            rows=rows,
            sequences=sequences,
            logits_rows=logits_rows,
            context=self._context,
            kv_blocks=self._kv_blocks,
            kv_dtype=self._kv_dtype,
        )

    def _find(self, batch: Batch) -> RecordedPlan:
        shape = self._shape(batch.rows, len(batch.chunks), batch.logits_rows)
        if shape in self._recorded:
            self._recorded.move_to_end(shape)
            return self._recorded[shape]
        return self._record(shape)

    def _record(self, shape: StepShape) -> RecordedPlan:
        graph = self._model.graph(shape)
        plan = make_plan(
            graph,
            self._devices,
            self._verdicts,
            self._state_devices,
            self._reserved_bytes,
            self._progress,
        )
        self._upload_missing(plan)
        self._forget(keep=_MAX_RECORDED - 1)
        try:
            recorded = RecordedPlan(plan, shape, self._resident)
        except OutOfDeviceMemory:
            if not self._recorded:
                raise
            self._forget(keep=0)  # recorded buckets are only a cache
            recorded = RecordedPlan(plan, shape, self._resident)
        self._recorded[shape] = recorded
        self._memory = self._measured()
        if self._trace_commands:
            print(f"commands of {shape}:\n{recorded.describe()}", file=sys.stderr)
        return recorded

    def _measured(self) -> dict[str, int]:
        kv = {key for key in self._resident if key[0] in self._state_devices}
        return {
            "weights": sum(b.size_in_bytes for k, b in self._resident.items() if k not in kv),
            "kv": sum(self._resident[key].size_in_bytes for key in kv),
            "activations": sum(recorded.size_in_bytes for recorded in self._recorded.values()),
        }

    def _forget(self, keep: int) -> None:
        """Give up the buckets that were used longest ago."""
        while len(self._recorded) > keep:
            self._recorded.popitem(last=False)[1].free()

    def _largest_activations(self, limits: BatchLimits) -> int:
        """Bytes that the largest bucket needs beside weights and cache, if that matters."""
        if all(device.info.memory_bytes is None for device in self._devices):
            return 0
        shape = self._shape(limits.rows, limits.sequences, limits.logits_rows)
        plan = make_plan(self._model.graph(shape), self._devices, self._verdicts)
        return max(arena.size for arena in plan.arenas) + plan.parameters.size

    def _upload_missing(self, plan: Plan) -> None:
        wanted = [
            (number, tensor)
            for number in range(len(plan.devices))
            for tensor in plan.constants_on(number)
            if (tensor.name, number) not in self._resident
        ]
        sizes = [t.type.storage.bytes_for(t.type.shape) for _, t in wanted]
        done = 0
        for (number, tensor), size in zip(wanted, sizes, strict=True):
            self._resident[tensor.name, number] = self._upload(plan.devices[number], tensor)
            done += size
            self._progress("Loading weights", done, sum(sizes))
        for number, device in enumerate(plan.devices):
            for tensor in plan.states_on(number):
                if (tensor.name, number) not in self._resident:
                    kind = tensor.type
                    buffer = device.alloc(kind.shape, kind.storage, kind.role, tensor.name)
                    self._resident[tensor.name, number] = buffer
                    self._state_devices[tensor.name] = number

    def _upload(self, device: Device, tensor: Tensor) -> Buffer:
        data = self._model.constant(tensor)
        kind = tensor.type
        return device.upload(data, kind.shape, kind.storage, kind.role, tensor.name)


def step_shape(
    *, rows: int, sequences: int, logits_rows: int, context: int, kv_blocks: int, kv_dtype: DType
) -> StepShape:
    """The bucket of a step with these sizes; `kv_blocks` does not count the padding block."""
    return StepShape(
        rows=_bucket(rows),
        sequences=_bucket(sequences),
        table_blocks=ceil_div(context, BLOCK_TOKENS),
        logits_rows=_bucket(logits_rows),
        kv_blocks=kv_blocks + 1,
        kv_dtype=kv_dtype,
        positions=context,
    )


def _bucket(size: int) -> int:
    """The next power of two; 0 stays 0."""
    return 1 << (size - 1).bit_length() if size else 0
