"""A plan recorded: its activation memory, one recording a segment, and the transfers between."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from crossinfer.core.dtypes import DType
from crossinfer.engine.batch import ParameterTables
from crossinfer.engine.layer_stream import LayerStream, last_uses
from crossinfer.graph.graph import Node, Source, Tensor
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.kernel import Dispatch, shape_text
from crossinfer.hal.recording import DispatchCommand, Recording
from crossinfer.hal.timer import TimedKernel, Timer
from crossinfer.models.decoder import StepShape
from crossinfer.plan.plan import Plan, Segment

if TYPE_CHECKING:
    from crossinfer.engine.slices import SlicedSegment, SliceGate

_RESULT_BYTES = 256
"""An output of up to so many bytes comes to the host with the step: the argmax of 64 rows."""


def nothing_else() -> None:
    """What a step's caller does while the step runs, if it has nothing to do."""


class RecordedPlan:
    """Replays one plan. Owns its activations and parameters; weights and caches are shared."""

    def __init__(
        self,
        plan: Plan,
        shape: StepShape,
        resident: Mapping[tuple[str, int], Buffer],
        stream: LayerStream | None = None,
        gate: SliceGate | None = None,
    ) -> None:
        """`resident` holds constants and states by name and device, `stream` the weights that come
        to the first device for each step; `gate` lets segments through in pieces. Raises
        DeviceError.
        """
        self.plan = plan
        self.shape = shape
        self.tables = ParameterTables(shape, plan.parameters)
        self._resident = resident
        self._stream = stream
        self._gate = gate
        self._streamed = {} if stream is None else stream.views()
        self._last_uses = last_uses([segment.streamed for segment in plan.segments])
        self._owned: list[Buffer] = []
        self._views: dict[tuple[Tensor, int], View] = {}
        self._brings_results = False
        try:
            self._arenas = [
                [self._alloc(number, size, "activations") for size in arena.buffer_sizes()]
                for number, arena in enumerate(plan.arenas)
            ]
            self._parameters = [
                self._alloc(number, plan.parameters.size, "parameters")
                for number in range(len(plan.devices))
            ]
        except BaseException:
            self.free()
            raise

    @functools.cached_property
    def _recordings(self) -> list[Recording | SlicedSegment]:
        """One for each segment. Made for the first step: a model is opened with the plan of steps
        of one token, and a prompt comes before them.
        """
        gate = self._gate
        return [
            self._record(segment, None) if gate is None else self._slice(segment, gate)
            for segment in self.plan.segments
        ]

    @property
    def is_recorded(self) -> bool:
        """Whether a step runs at once."""
        return "_recordings" in vars(self)

    @functools.cached_property
    def _results(self) -> dict[str, tuple[Recording, int, int]]:
        """The outputs that a recording brings to the host: their numbers, and bytes of a row."""
        return {
            output: (recording, number, self._row_bytes(output))
            for segment, recording in zip(self.plan.segments, self._recordings, strict=True)
            if isinstance(recording, Recording)
            for number, output in enumerate(self._small_outputs(segment))
        }

    @property
    def size_in_bytes(self) -> int:
        """Bytes of activations and parameters on all devices."""
        return sum(buffer.size_in_bytes for buffer in self._owned)

    def run(self, params: bytes, meanwhile: Callable[[], None] = nothing_else) -> None:
        """Run the step on the packed inputs `params`, and wait. Raises DeviceError.

        `meanwhile` is called once the first segment is submitted.
        """
        self._execute(self._recordings, params, meanwhile)
        self._brings_results = True

    def run_timed(
        self, params: bytes, meanwhile: Callable[[], None] = nothing_else
    ) -> list[TimedKernel]:
        """Run with a timestamp around every dispatch, from recordings made for it.

        Starts are counted from each device's first dispatch. Raises DeviceError.
        """
        timers = [_timer(self.plan, segment) for segment in self.plan.segments]
        recordings = [
            self._record(segment, timer)
            for segment, timer in zip(self.plan.segments, timers, strict=True)
        ]
        self._execute(recordings, params, meanwhile)
        self._brings_results = False  # these recordings have none
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
        for segment in self.plan.segments:
            for command in self._record(segment, None).commands:
                if isinstance(command, DispatchCommand):
                    if command.barrier is not None:
                        kinds = dict.fromkeys(h.kind.value for h in command.barrier.hazards)
                        lines.append(f"  barrier: {', '.join(kinds)}")
                    dispatch = command.dispatch
                    lines.append(f"  {dispatch.kernel.name} {dispatch.grid} {dispatch.label}")
        return "\n".join(lines)

    def download(self, output: str, rows: int) -> bytes:
        """The first `rows` rows of a graph output. Raises DeviceError."""
        if self._brings_results and output in self._results:
            recording, number, row_bytes = self._results[output]
            return recording.read_result(number)[: rows * row_bytes]
        device = self.plan.outputs[output]
        view = self._activation(self.plan.graph.outputs[output], device)
        row_bytes = self._row_bytes(output)
        return self.plan.devices[device].download(View(view.buffer, view.offset, rows * row_bytes))

    def _row_bytes(self, output: str) -> int:
        kind = self.plan.graph.outputs[output].type
        return kind.storage.bytes_for(kind.shape[1:])

    def free(self) -> None:
        """Give the buffers back."""
        for buffer in self._owned:
            buffer.free()
        self._owned.clear()

    def _alloc(self, device: int, size: int, label: str) -> Buffer:
        shape = (size // DType.I32.block_bytes,)
        buffer = self.plan.devices[device].alloc(shape, DType.I32, label=label)
        self._owned.append(buffer)
        return buffer

    def _execute(
        self,
        recordings: Sequence[Recording | SlicedSegment],
        params: bytes,
        meanwhile: Callable[[], None],
    ) -> None:
        stream = self._stream
        try:
            self._run_segments(recordings, params, meanwhile)
            if stream is not None:
                stream.begin_next()
        except BaseException:
            if stream is not None:
                stream.forget()
            raise

    def _run_segments(
        self,
        recordings: Sequence[Recording | SlicedSegment],
        params: bytes,
        meanwhile: Callable[[], None],
    ) -> None:
        started: set[int] = set()
        devices, stream = self.plan.devices, self._stream
        # Whatever fails: nothing may be in flight afterwards, since the recordings are run again.
        with contextlib.ExitStack() as waits:
            for number, (segment, recording) in enumerate(
                zip(self.plan.segments, recordings, strict=True)
            ):
                layer = segment.streamed
                if stream is not None and layer is not None:
                    stream.wait_for(layer)
                for transfer in segment.transfers:
                    source = self._activation(transfer.tensor, transfer.source)
                    target = self._activation(transfer.tensor, transfer.target)
                    data = devices[transfer.source].download(source)
                    devices[transfer.target].write(target, data)
                given = b"" if segment.device in started else params
                if isinstance(recording, Recording):
                    fence = devices[segment.device].submit(recording, given)
                else:
                    fence = recording.submit(given)
                waits.callback(fence.wait)
                started.add(segment.device)
                if number == 0:
                    meanwhile()
                if stream is not None and layer is not None and self._last_uses[layer] == number:
                    stream.computes(layer, fence)

    def _record(self, segment: Segment, timer: Timer | None) -> Recording:
        device = self.plan.devices[segment.device]
        recorder = device.recorder(self._parameters[segment.device])
        for number, (_, dispatch) in enumerate(self._dispatches(segment)):
            if timer is not None:
                recorder.timestamp(timer, 2 * number)
            recorder.dispatch(dispatch)
            if timer is not None:
                recorder.timestamp(timer, 2 * number + 1)
        if timer is None:
            for output in self._small_outputs(segment):
                tensor = self.plan.graph.outputs[output]
                recorder.result(self._activation(tensor, segment.device))
        return recorder.finish()

    def _small_outputs(self, segment: Segment) -> list[str]:
        """What a segment makes for the host and is worth bringing along with each step."""
        made = {t for step in segment.steps for t in step.node.outputs.values()}
        return [
            name
            for name, tensor in self.plan.graph.outputs.items()
            if tensor in made and tensor.type.storage.bytes_for(tensor.type.shape) <= _RESULT_BYTES
        ]

    def _slice(self, segment: Segment, gate: SliceGate) -> SlicedSegment:
        from crossinfer.engine.slices import SlicedSegment  # few hosts ask for slices

        dispatches = [dispatch for _, dispatch in self._dispatches(segment)]
        device = self.plan.devices[segment.device]
        return SlicedSegment(device, dispatches, self._parameters[segment.device], gate)

    def _dispatches(self, segment: Segment) -> Iterator[tuple[Node, Dispatch]]:
        # Layers are alike, and their nodes are lowered once.
        described: dict[int, tuple[tuple[str, ...], str]] = {}
        for step in segment.steps:
            if id(step.lowering) not in described:
                types = step.node.operand_types()
                names = (*types, *step.lowering.scratch)
                described[id(step.lowering)] = names, shape_text(types)
            names, shape = described[id(step.lowering)]
            views = {name: self._view(step.node, name, segment.device) for name in names}
            for dispatch in step.lowering.bind(views, step.node.name, shape):
                yield step.node, dispatch

    def _view(self, node: Node, operand: str, device: int) -> View:
        tensor = node.inputs.get(operand) or node.outputs.get(operand)
        if tensor is None:
            return self._region(device, (node, operand))
        known = self._views.get((tensor, device))
        if known is None:
            known = self._views[tensor, device] = self._view_of(tensor, device)
        return known

    def _view_of(self, tensor: Tensor, device: int) -> View:
        root = self.plan.roots[tensor]
        match root.source:
            case Source.INPUT:
                buffer, region = self._parameters[device], self.plan.parameters.regions[root.name]
                return View(buffer, region.offset, region.size)
            case Source.CONSTANT if device == 0 and root.name in self._streamed:
                return self._streamed[root.name]
            case Source.CONSTANT | Source.STATE:
                return self._resident[root.name, device].view()
            case Source.NODE:
                return self._activation(tensor, device)

    def _activation(self, tensor: Tensor, device: int) -> View:
        return self._region(device, self.plan.roots[tensor])

    def _region(self, device: int, key: Hashable) -> View:
        arena = self.plan.arenas[device]
        number, offset = arena.place(arena.regions[key])
        return View(self._arenas[device][number], offset, arena.regions[key].size)


def _timer(plan: Plan, segment: Segment) -> Timer:
    dispatches = sum(len(step.lowering.dispatches) for step in segment.steps)
    return plan.devices[segment.device].timer(2 * dispatches)
