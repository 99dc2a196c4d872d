"""A witness of every call on command lists and queues, which knows the documented rules.

libvkd3d takes lists whose buffers are in the wrong state. The witness follows each execution of
lists as the documentation describes it, and complains of a barrier that is missing, wrong or
redundant, of barriers that were not put into one call, and of allocators that are reset too early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crossinfer.backends.d3d12 import encode
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.constants import BarrierType, Heap, State
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Command, DispatchCommand

READS = State.NON_PIXEL_SHADER_RESOURCE | State.COPY_SOURCE


@dataclasses.dataclass(frozen=True)
class Touch:
    """Bytes of a resource that a command uses in a state."""

    resource: int
    state: State
    start: int
    end: int
    writes: bool

    def conflicts(self, other: Touch) -> bool:
        meet = self.start < other.end and other.start < self.end
        return meet and (self.writes or other.writes)


@dataclasses.dataclass(frozen=True)
class Barriers:
    """One call of ResourceBarrier: (resource or None for all, before, after); UAV barriers have no
    states.
    """

    entries: tuple[tuple[int | None, State | None, State | None], ...]


@dataclasses.dataclass(frozen=True)
class Work:
    """A dispatch or copy; or a timestamp, which touches nothing."""

    name: str
    touches: tuple[Touch, ...]


Event = Barriers | Work


@dataclasses.dataclass
class _Resource:
    """A buffer within one call of ExecuteCommandLists."""

    state: State
    promoted: bool
    used: bool = True
    touches: list[Touch] = dataclasses.field(default_factory=list)
    """In this state, since the last UAV barrier."""
    before_barrier: list[Touch] | None = None
    """Those before a UAV barrier that nothing has needed yet."""


class StrictRecorder:
    """Everything that the devices opened after `watch` record and execute."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.calls: list[str] = []
        self.executions = 0
        self._heaps: dict[int, Heap] = {}
        self._sizes: dict[int, int] = {}
        self._addresses: dict[int, int] = {}
        self._lists: dict[int, list[Event]] = {}
        self._open: set[int] = set()
        self._allocators: dict[int, set[int]] = {}
        self._roots: dict[int, dict[int, tuple[State, int]]] = {}
        self._expected: list[Dispatch] = []
        self._executed: dict[int, int] = {}
        self._signalled = 0
        self._completed = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        find, record = ComObject.__getattr__, encode.Encoder.encode

        def watched(held: ComObject, name: str) -> Any:
            found = find(held, name)
            handler = getattr(self, f"_{held.interface}_{name}", None)

            def call(*arguments: Any) -> Any:
                self.calls.append(f"{held.interface}.{name}")
                result = found(*arguments)
                if handler is not None:
                    handler(held.address, result, *arguments)
                return result

            held.__dict__[name] = call
            return call

        def recorded(encoder: encode.Encoder, commands: Sequence[Command]) -> Any:
            self._expected = [c.dispatch for c in commands if isinstance(c, DispatchCommand)]
            return record(encoder, commands)

        monkeypatch.setattr(ComObject, "__getattr__", watched)
        monkeypatch.setattr(encode.Encoder, "encode", recorded)

    def barrier_count(self) -> int:
        return sum(isinstance(e, Barriers) for events in self._lists.values() for e in events)

    # What is created.

    def _ID3D12Device_CreateCommittedResource(  # noqa: N802
        self, _this: int, _result: int, *arguments: Any
    ) -> None:
        address = arguments[-1]._obj.value
        self._addresses.pop(address, None)  # of one that is gone
        self._heaps[address] = Heap(arguments[0]._obj.Type)
        self._sizes[address] = arguments[2]._obj.Width

    def _ID3D12Resource_GetGPUVirtualAddress(self, this: int, result: int) -> None:  # noqa: N802
        self._addresses[this] = result

    def _ID3D12Device_CreateCommandList(  # noqa: N802
        self, _this: int, _result: int, *arguments: Any
    ) -> None:
        self._begin(arguments[-1]._obj.value, arguments[2])

    # What is recorded.

    def _begin(self, this: int, allocator: ComObject) -> None:
        self._lists[this] = []
        self._roots[this] = {}
        self._open.add(this)
        self._allocators.setdefault(allocator.address, set()).add(this)

    def _ID3D12GraphicsCommandList_Reset(  # noqa: N802
        self, this: int, _result: int, allocator: ComObject, _pipeline: object
    ) -> None:
        self._begin(this, allocator)

    def _ID3D12GraphicsCommandList_Close(self, this: int, _result: int) -> None:  # noqa: N802
        self._open.discard(this)

    def _ID3D12CommandAllocator_Reset(self, this: int, _result: int) -> None:  # noqa: N802
        for held in self._allocators.pop(this, ()):
            if held in self._open:
                self._complain("an allocator was reset while a list of it was open")
            if self._executed.get(held, 0) > self._completed:
                self._complain("an allocator was reset before its lists were seen to have ended")

    def _ID3D12GraphicsCommandList_SetComputeRootSignature(  # noqa: N802
        self, this: int, _result: None, _signature: object
    ) -> None:
        self._roots[this] = {}

    def _ID3D12GraphicsCommandList_SetComputeRootShaderResourceView(  # noqa: N802
        self, this: int, _result: None, index: int, address: int
    ) -> None:
        self._roots[this][index] = (State.NON_PIXEL_SHADER_RESOURCE, address)

    def _ID3D12GraphicsCommandList_SetComputeRootUnorderedAccessView(  # noqa: N802
        self, this: int, _result: None, index: int, address: int
    ) -> None:
        self._roots[this][index] = (State.UNORDERED_ACCESS, address)

    def _ID3D12GraphicsCommandList_Dispatch(  # noqa: N802
        self, this: int, _result: None, *_grid: int
    ) -> None:
        dispatch = self._expected.pop(0)
        reads = [b for b in dispatch.bindings if b.access is Access.READ]
        writes = [b for b in dispatch.bindings if b.access is not Access.READ]
        views = [view for _, view in sorted(self._roots[this].items())]
        if len(views) != len(reads) + len(writes):
            self._complain(f"{dispatch.kernel.name} has {len(views)} views")
            return
        touches = []
        for binding, (state, address) in zip([*reads, *writes], views, strict=True):
            resource, start = self._find(address)
            end = start + binding.view.size
            touches.append(Touch(resource, state, start, end, binding.access is not Access.READ))
        self._lists[this].append(Work(dispatch.kernel.name, tuple(touches)))

    def _ID3D12GraphicsCommandList_CopyBufferRegion(  # noqa: N802
        self, this: int, _result: None, target: ComObject, to: int, source: ComObject, at: int,
        size: int,
    ) -> None:  # fmt: skip
        touches = (
            Touch(source.address, State.COPY_SOURCE, at, at + size, writes=False),
            Touch(target.address, State.COPY_DEST, to, to + size, writes=True),
        )
        self._lists[this].append(Work("copy", touches))

    def _ID3D12GraphicsCommandList_ResourceBarrier(  # noqa: N802
        self, this: int, _result: None, _count: int, array: Any
    ) -> None:
        entries: list[tuple[int | None, State | None, State | None]] = []
        for entry in array:
            resource = entry.Transition.pResource
            if entry.Type == BarrierType.UAV:
                entries.append((resource, None, None))
            else:
                before = State(entry.Transition.StateBefore)
                entries.append((resource, before, State(entry.Transition.StateAfter)))
        self._lists[this].append(Barriers(tuple(entries)))

    def _ID3D12GraphicsCommandList_EndQuery(  # noqa: N802
        self, this: int, _result: None, *_arguments: object
    ) -> None:
        self._lists[this].append(Work("timestamp", ()))

    # What is executed.

    def _ID3D12CommandQueue_ExecuteCommandLists(  # noqa: N802
        self, _this: int, _result: None, count: int, array: Any
    ) -> None:
        assert count == 1, "this backend executes lists one by one"
        self.executions += 1
        held = array._obj.value
        if held in self._open:
            self._complain("a list was executed that is still open")
        self._executed[held] = self._signalled + 1
        check(self._lists[held], self._heaps, self._complain)

    def _ID3D12CommandQueue_Signal(  # noqa: N802
        self, _this: int, _result: int, _fence: object, value: int
    ) -> None:
        self._signalled = value

    def _ID3D12Fence_GetCompletedValue(self, _this: int, result: int) -> None:  # noqa: N802
        self._completed = max(self._completed, result)

    def _find(self, address: int) -> tuple[int, int]:
        """The resource at an address of the GPU, and the offset in it."""
        # The latest first: those that are gone are still among them.
        for resource, start in reversed(self._addresses.items()):
            if start <= address < start + self._sizes[resource]:
                return resource, address - start
        raise AssertionError(f"no buffer lies at {address:#x}")

    def _complain(self, text: str) -> None:
        self.complaints.append(text)


def check(events: Sequence[Event], heaps: dict[int, Heap], complain: Callable[[str], None]) -> None:
    """One list, executed by itself: every buffer is in COMMON when it starts."""
    known: dict[int, _Resource] = {}
    drained_for: int | None = None
    for number, event in enumerate(events):
        if isinstance(event, Barriers):
            if number and isinstance(events[number - 1], Barriers):
                complain("barriers before one command are in two calls")
            if len({resource for resource, _, _ in event.entries}) < len(event.entries):
                complain("two barriers before one command are on one buffer")
            for resource, before, after in event.entries:
                if resource is None:
                    drained_for = number + 1
                    _drain(known)
                elif before is None or after is None:
                    _uav_barrier(known, resource, complain)
                else:
                    _transition(known, heaps, resource, before, after, complain)
        else:
            if drained_for == number and event.name != "timestamp":
                complain("all UAV accesses were waited for, and not for a timestamp")
            _work(known, heaps, event, complain)
    if drained_for == len(events):
        complain("all UAV accesses were waited for at the end of a list")
    for last in known.values():
        if not last.used:
            complain("redundant: a transition that no command needed")
        if last.before_barrier is not None:
            complain("redundant: a UAV barrier that no command needed")


def _drain(known: dict[int, _Resource]) -> None:
    for resource in known.values():
        resource.touches = []


def _uav_barrier(
    known: dict[int, _Resource], address: int, complain: Callable[[str], None]
) -> None:
    resource = known.get(address)
    if resource is None or resource.state is not State.UNORDERED_ACCESS or not resource.touches:
        complain("redundant: a UAV barrier on a buffer that was not used by UAV")
        return
    resource.before_barrier, resource.touches = resource.touches, []


def _transition(
    known: dict[int, _Resource],
    heaps: dict[int, Heap],
    address: int,
    before: State,
    after: State,
    complain: Callable[[str], None],
) -> None:
    if heaps[address] is not Heap.DEFAULT:
        complain("wrong: a transition of memory for upload or readback")
    resource = known.get(address)
    if resource is None:
        complain("redundant: a transition from COMMON, from where access promotes")
    elif resource.state != before:
        complain(f"wrong: a transition from {before!r}, and the buffer is in {resource.state!r}")
    elif not resource.used:
        complain("redundant: a transition that no command needed")
    elif after in before or (resource.promoted and {before, after} <= _read_states()):
        complain("redundant: a transition to a state that the buffer has or would get")
    known[address] = _Resource(after, promoted=False, used=False)


def _read_states() -> set[State]:
    return {State.NON_PIXEL_SHADER_RESOURCE, State.COPY_SOURCE, READS}


def _work(
    known: dict[int, _Resource],
    heaps: dict[int, Heap],
    work: Work,
    complain: Callable[[str], None],
) -> None:
    states: dict[int, State] = {}
    for touch in work.touches:
        if states.setdefault(touch.resource, touch.state) != touch.state:
            complain(f"wrong: {work.name} needs a buffer in two states")
    for address, state in states.items():
        heap = heaps[address]
        if heap is not Heap.DEFAULT:
            fixed = State.GENERIC_READ if heap is Heap.UPLOAD else State.COPY_DEST
            if state not in fixed:
                complain(f"wrong: {work.name} uses memory of {heap!r} as {state!r}")
            continue
        resource = known.get(address)
        if resource is None:
            resource = known[address] = _Resource(state, promoted=True)
        elif state not in resource.state:
            if resource.promoted and resource.state in READS and state in READS:
                resource.state |= state
            else:
                complain(f"missing: {work.name} needs {state!r}, not {resource.state!r}")
        resource.used = True
        _accesses(resource, work, address, complain)


def _accesses(
    resource: _Resource, work: Work, address: int, complain: Callable[[str], None]
) -> None:
    if resource.state is not State.UNORDERED_ACCESS:
        return
    touches = [touch for touch in work.touches if touch.resource == address]
    if any(touch.conflicts(other) for touch in touches for other in resource.touches):
        complain(f"missing: {work.name} uses what an earlier command wrote or read, by UAV")
    earlier, resource.before_barrier = resource.before_barrier, None
    if earlier is not None and not any(t.conflicts(o) for t in touches for o in earlier):
        complain("redundant: a UAV barrier before a command that has no hazard")
    resource.touches += touches
