"""A plan recorded: its activation memory, one recording a segment, and the transfers between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from crossinfer.core.dtypes import DType
from crossinfer.graph.graph import Node, Source, Tensor
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import DispatchCommand, Recording
from crossinfer.hal.timer import TimedKernel, Timer
from crossinfer.models.decoder import StepShape
from crossinfer.plan.memory import Region
from crossinfer.plan.plan import Plan, Segment


class RecordedPlan:
    """Replays one plan. Owns its activations and parameters; weights and caches are shared."""

    def __init__(
        self, plan: Plan, shape: StepShape, resident: Mapping[tuple[str, int], Buffer]
    ) -> None:
        """`resident` holds constants and states by name and device. Raises DeviceError."""
        self.plan = plan
        self.shape = shape
        self._resident = resident
        self._owned: list[Buffer] = []
        try:
            self._arenas = [
                self._alloc(number, arena.size, "activations")
                for number, arena in enumerate(plan.arenas)
            ]
            self._parameters = [
                self._alloc(number, plan.parameters.size, "parameters")
                for number in range(len(plan.devices))
            ]
            self._recordings = [self._record(segment, None) for segment in plan.segments]
        except BaseException:
            self.free()
            raise

    @property
    def size_in_bytes(self) -> int:
        """Bytes of activations and parameters on all devices."""
        return sum(buffer.size_in_bytes for buffer in self._owned)

    def run(self, params: bytes) -> None:
        """Run the step on the packed inputs `params`, and wait. Raises DeviceError."""
        self._execute(self._recordings, params)

    def run_timed(self, params: bytes) -> list[TimedKernel]:
        """Run with a timestamp around every dispatch, from recordings made for it.

        Starts are counted from each device's first dispatch. Raises DeviceError.
        """
        timers = [_timer(self.plan, segment) for segment in self.plan.segments]
        recordings = [
            self._record(segment, timer)
            for segment, timer in zip(self.plan.segments, timers, strict=True)
        ]
        self._execute(recordings, params)
        origins: dict[int, float] = {}
        timeline = []
        for segment, timer in zip(self.plan.segments, timers, strict=True):
            times = [time for time in timer.read() if time is not None]
            origin = origins.setdefault(segment.device, times[0])
            for number, (node, dispatch) in enumerate(self._dispatches(segment)):
                start, end = times[2 * number], times[2 * number + 1]
                name = self.plan.devices[segment.device].info.name
                timeline.append(
                    TimedKernel(dispatch.kernel.name, node.name, name, start - origin, end - start)
                )
        return timeline

    def describe(self) -> str:
        """Every command with the barriers between them, as lines of text."""
        lines = []
        for recording in self._recordings:
            for command in recording.commands:
                if isinstance(command, DispatchCommand):
                    if command.barrier is not None:
                        kinds = dict.fromkeys(h.kind.value for h in command.barrier.hazards)
                        lines.append(f"  barrier: {', '.join(kinds)}")
                    dispatch = command.dispatch
                    lines.append(f"  {dispatch.kernel.name} {dispatch.grid} {dispatch.label}")
        return "\n".join(lines)

    def download(self, output: str, rows: int) -> bytes:
        """The first `rows` rows of a graph output. Raises DeviceError."""
        device = self.plan.outputs[output]
        view = self._activation(self.plan.graph.outputs[output], device)
        row_bytes = view.size // self.plan.graph.outputs[output].type.shape[0]
        return self.plan.devices[device].download(View(view.buffer, view.offset, rows * row_bytes))

    def free(self) -> None:
        """Give the buffers back."""
        for buffer in self._owned:
            buffer.free()
        self._owned.clear()

    def _alloc(self, device: int, size: int, label: str) -> Buffer | None:
        if size == 0:  # a device that no node was placed on
            return None
        shape = (size // DType.I32.block_bytes,)
        buffer = self.plan.devices[device].alloc(shape, DType.I32, label=label)
        self._owned.append(buffer)
        return buffer

    def _execute(self, recordings: Sequence[Recording], params: bytes) -> None:
        started: set[int] = set()
        devices = self.plan.devices
        # Whatever fails: nothing may be in flight afterwards, since the recordings are run again.
        with contextlib.ExitStack() as waits:
            for segment, recording in zip(self.plan.segments, recordings, strict=True):
                for transfer in segment.transfers:
                    source = self._activation(transfer.tensor, transfer.source)
                    target = self._activation(transfer.tensor, transfer.target)
                    data = devices[transfer.source].download(source)
                    devices[transfer.target].write(target, data)
                given = b"" if segment.device in started else params
                waits.callback(devices[segment.device].submit(recording, given).wait)
                started.add(segment.device)

    def _record(self, segment: Segment, timer: Timer | None) -> Recording:
        device = self.plan.devices[segment.device]
        recorder = device.recorder(self._parameters[segment.device])
        for number, (_, dispatch) in enumerate(self._dispatches(segment)):
            if timer is not None:
                recorder.timestamp(timer, 2 * number)
            recorder.dispatch(dispatch)
            if timer is not None:
                recorder.timestamp(timer, 2 * number + 1)
        return recorder.finish()

    def _dispatches(self, segment: Segment) -> Iterator[tuple[Node, Dispatch]]:
        for step in segment.steps:
            names = (*step.node.operand_types(), *step.lowering.scratch)
            views = {name: self._view(step.node, name, segment.device) for name in names}
            for dispatch in step.lowering.bind(views, step.node.name):
                yield step.node, dispatch

    def _view(self, node: Node, operand: str, device: int) -> View:
        tensor = node.inputs.get(operand) or node.outputs.get(operand)
        if tensor is None:
            scratch = self.plan.arenas[device].regions[node, operand]
            return self._region(self._arenas[device], scratch)
        root = self.plan.roots[tensor]
        match root.source:
            case Source.INPUT:
                region = self.plan.parameters.regions[root.name]
                return self._region(self._parameters[device], region)
            case Source.CONSTANT | Source.STATE:
                return self._resident[root.name, device].view()
            case Source.NODE:
                return self._activation(tensor, device)

    def _activation(self, tensor: Tensor, device: int) -> View:
        region = self.plan.arenas[device].regions[self.plan.roots[tensor]]
        return self._region(self._arenas[device], region)

    @staticmethod
    def _region(buffer: Buffer | None, region: Region) -> View:
        assert buffer is not None, "a region implies a buffer"
        return View(buffer, region.offset, region.size)


def _timer(plan: Plan, segment: Segment) -> Timer:
    dispatches = sum(len(step.lowering.dispatches) for step in segment.steps)
    return plan.devices[segment.device].timer(2 * dispatches)
