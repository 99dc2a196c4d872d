"""Makes recordings: pipelines, commands, and the barriers that the states of buffers ask for.

A dispatch may read one part of a buffer and write another. In Direct3D 12 a buffer is in one state
as a whole, so what it reads there is copied aside first; likewise for a copy within one buffer. The
engine gives tensors that live at the same time buffers of their own on this backend, so it does not
pay for that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crossinfer.backends.d3d12.commands import CommandList, CommandPool
from crossinfer.backends.d3d12.constants import MOST_GROUPS, Heap, State
from crossinfer.backends.d3d12.descriptors import DescriptorLoan, DescriptorPool
from crossinfer.backends.d3d12.memory import Allocation, address_of, allocation_of, create_buffer
from crossinfer.backends.d3d12.operators import Operator, Place
from crossinfer.backends.d3d12.pipelines import Pipeline, Pipelines
from crossinfer.backends.d3d12.recorded import EncodedRecording
from crossinfer.backends.d3d12.states import StateTracker, Use
from crossinfer.backends.d3d12.timers import TimerQueries, queries_of
from crossinfer.core.errors import KernelUnsupported
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Binding, View
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Command, CopyCommand, DispatchCommand, TimestampCommand
from crossinfer.kernels.shader_device import shader_of

PART_COMMANDS = 32
"""Commands of a list, which is executed by itself: Windows resets a GPU that is busy with one for
two seconds. (32 commands of a large prefill on a slow GPU take about half a second.)"""


@dataclasses.dataclass(frozen=True)
class _Run:
    """What a dispatch needs beside its grid and constants."""

    pipeline: Pipeline
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    aside: frozenset[int]
    """The numbers of the views to read that are copied aside."""


class Encoder:
    """Makes recordings on one device. Used by one thread at a time."""

    def __init__(
        self, pool: CommandPool, pipelines: Pipelines, descriptors: DescriptorPool
    ) -> None:
        self._pool = pool
        self._pipelines = pipelines
        self._descriptors = descriptors

    def encode(self, commands: Sequence[Command]) -> EncodedRecording:
        """Raises ComError, KernelUnsupported, InvalidUse."""
        runs = [
            self._prepare(command.dispatch) if isinstance(command, DispatchCommand) else None
            for command in commands
        ]
        scratch_bytes = max(map(_aside_bytes, commands, runs), default=0)
        scratch = None
        if scratch_bytes:
            scratch = create_buffer(self._pool.native.device, Heap.DEFAULT, scratch_bytes)
        descriptors = self._borrow([run for run in runs if isinstance(run, Operator)])
        encoded = EncodedRecording(self._pool, scratch, descriptors)
        for start in range(0, max(1, len(commands)), PART_COMMANDS):
            writer = _Writer(encoded.add_part(), scratch, descriptors)
            end = start + PART_COMMANDS
            for command, run in zip(commands[start:end], runs[start:end], strict=True):
                writer.record(command, run)
            writer.end()
        return encoded

    def _prepare(self, dispatch: Dispatch) -> _Run | Operator:
        operator = dispatch.kernel.handle
        if not isinstance(operator, Operator):
            return self._run(dispatch)
        operator.prepare()
        return operator

    def _borrow(self, operators: Sequence[Operator]) -> DescriptorLoan | None:
        """Descriptors for a dispatch of each of them."""
        if not operators:
            return None
        return self._descriptors.lend(sum(operator.descriptors for operator in operators))

    def _run(self, dispatch: Dispatch) -> _Run:
        shader, reads, writes = shader_of(dispatch)
        if any(size > MOST_GROUPS for size in dispatch.grid):
            raise KernelUnsupported(
                f"Kernel {dispatch.kernel.name} needs the grid {dispatch.grid}, and Direct3D 12 "
                f"allows {MOST_GROUPS} groups on an axis."
            )
        written = {binding.view.buffer for binding in writes}
        aside = frozenset(n for n, b in enumerate(reads) if b.view.buffer in written)
        return _Run(self._pipelines.pipeline(shader), tuple(reads), tuple(writes), aside)


class _Writer:
    """Puts commands into one list."""

    def __init__(
        self, commands: CommandList, scratch: Allocation | None, descriptors: DescriptorLoan | None
    ) -> None:
        self._commands = commands
        self._scratch = scratch
        self._descriptors = descriptors
        self._heap_is_set = False
        self._states = StateTracker()
        self._timed: dict[TimerQueries, set[int]] = {}

    def record(self, command: Command, run: _Run | Operator | None) -> None:
        match command:
            case TimestampCommand(timer, index):
                self._commands.barriers(self._states.drain())
                queries = queries_of(timer)
                self._commands.timestamp(queries.heap, index)
                self._timed.setdefault(queries, set()).add(index)
            case CopyCommand(source, destination):
                self._copy(source, destination)
            case DispatchCommand(dispatch):
                assert run is not None
                if isinstance(run, _Run):
                    self._dispatch(dispatch, run)
                else:
                    self._operate(dispatch, run)

    def end(self) -> None:
        for queries, indices in self._timed.items():
            for first, count in _runs(sorted(indices)):
                self._commands.resolve_timestamps(
                    queries.heap, first, count, queries.times.resource
                )
        self._commands.end()

    def _copy(self, source: View, destination: View) -> None:
        if source.buffer is destination.buffer:
            self._copy_between(_place(source), self._scratch_place(0), source.size)
            self._copy_between(self._scratch_place(0), _place(destination), source.size)
        else:
            self._copy_between(_place(source), _place(destination), source.size)

    def _dispatch(self, dispatch: Dispatch, run: _Run) -> None:
        uses, addresses, offset = [], [], 0
        copies = []
        for number, binding in enumerate(run.reads):
            view, memory = binding.view, allocation_of(binding.view.buffer)
            if number in run.aside:
                copies.append((_place(view), self._scratch_place(offset), view.size))
                memory = self._scratch_place(offset)[0]
                addresses.append(memory.address + offset)
                offset += align_up(view.size, VIEW_ALIGNMENT)
            else:
                addresses.append(address_of(view))
            uses.append(Use(memory.resource.address, State.NON_PIXEL_SHADER_RESOURCE))
        for binding in run.writes:
            resource = allocation_of(binding.view.buffer).resource
            uses.append(Use(resource.address, State.UNORDERED_ACCESS, binding))
            addresses.append(address_of(binding.view))
        for copy in copies:
            self._copy_between(*copy)
        self._commands.barriers(self._states.before(uses))
        self._commands.dispatch(run.pipeline, dispatch.constants, addresses, dispatch.grid)

    def _operate(self, dispatch: Dispatch, operator: Operator) -> None:
        """See `Operator`. It sees everything through UAVs, so nothing is copied aside."""
        assert self._descriptors is not None, "the encoder has counted them"
        if not self._heap_is_set:
            self._descriptors.set_on(self._commands.list)
            self._heap_is_set = True
        uses, places = [], []
        for binding in dispatch.bindings:
            memory, view = allocation_of(binding.view.buffer), binding.view
            uses.append(Use(memory.resource.address, State.UNORDERED_ACCESS, binding))
            places.append(Place(memory.resource, view.offset, view.size))
        self._commands.barriers(self._states.before(uses))
        descriptors = self._descriptors.take(operator.descriptors)
        operator.record(self._commands.list, places, descriptors)
        self._commands.forget_state()

    def _copy_between(
        self, source: tuple[Allocation, int], target: tuple[Allocation, int], size: int
    ) -> None:
        uses = (
            Use(source[0].resource.address, State.COPY_SOURCE),
            Use(target[0].resource.address, State.COPY_DEST),
        )
        self._commands.barriers(self._states.before(uses))
        self._commands.copy((source[0].resource, source[1]), (target[0].resource, target[1]), size)

    def _scratch_place(self, offset: int) -> tuple[Allocation, int]:
        assert self._scratch is not None, "the encoder has counted what is copied aside"
        return self._scratch, offset


def _place(view: View) -> tuple[Allocation, int]:
    return allocation_of(view.buffer), view.offset


def _aside_bytes(command: Command, run: _Run | Operator | None) -> int:
    """Bytes that a command copies aside."""
    if isinstance(command, CopyCommand):
        within = command.source.buffer is command.destination.buffer
        return command.source.size if within else 0
    if not isinstance(run, _Run):
        return 0
    return sum(align_up(run.reads[n].view.size, VIEW_ALIGNMENT) for n in run.aside)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs of consecutive ones: (first, count)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and sum(runs[-1]) == number:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs
