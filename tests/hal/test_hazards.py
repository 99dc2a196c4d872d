"""The hazard tracker against a brute-force model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.backends.null import NullDevice
from crossinfer.core.dtypes import DType
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Access, Binding, Buffer, View
from crossinfer.hal.hazards import HazardKind, HazardTracker
from crossinfer.hal.kernel import Dispatch, Kernel
from crossinfer.hal.recording import CopyCommand, DispatchCommand, TimestampCommand

UNITS = 6
READ, WRITE, READ_WRITE = Access.READ, Access.WRITE, Access.READ_WRITE

DEVICE = NullDevice()
BUFFERS = [DEVICE.alloc((UNITS * VIEW_ALIGNMENT // 4,), DType.I32) for _ in range(2)]

Bindings = tuple[Binding, ...]


@st.composite
def bindings(draw: st.DrawFn) -> Binding:
    start = draw(st.integers(0, UNITS - 1))
    end = draw(st.integers(start + 1, UNITS))
    # Sizes need not be whole units.
    size = (end - start) * VIEW_ALIGNMENT - draw(st.sampled_from([0, 1, VIEW_ALIGNMENT - 1]))
    view = View(draw(st.sampled_from(BUFFERS)), start * VIEW_ALIGNMENT, size)
    return Binding(view, draw(st.sampled_from([READ, WRITE, READ_WRITE])))


PROGRAMS = st.lists(st.lists(bindings(), min_size=1, max_size=3).map(tuple), max_size=12)


def touched(binding: Binding) -> set[tuple[int, int]]:
    """The bytes of a binding."""
    view = binding.view
    return {(id(view.buffer), byte) for byte in range(view.offset, view.offset + view.size)}


def model_conflict(earlier: Bindings, later: Bindings) -> bool:
    """Whether two commands touch a common byte that one of them writes."""
    return any(
        touched(a) & touched(b) and WRITE in (a.access | b.access) for a in earlier for b in later
    )


def barriers(program: Sequence[Bindings]) -> list[bool]:
    tracker = HazardTracker()
    return [tracker.before(command) is not None for command in program]


@settings(deadline=None)
@given(PROGRAMS)
def test_every_conflicting_pair_has_a_barrier_between(program: list[Bindings]) -> None:
    placed = barriers(program)
    for j, later in enumerate(program):
        for i, earlier in enumerate(program[:j]):
            if model_conflict(earlier, later):
                assert any(placed[i + 1 : j + 1]), f"commands {i} and {j}"


@settings(deadline=None)
@given(PROGRAMS)
def test_every_barrier_has_a_conflict_since_the_last_one(program: list[Bindings]) -> None:
    last = 0
    for j, placed in enumerate(barriers(program)):
        if placed:
            assert any(model_conflict(earlier, program[j]) for earlier in program[last:j])
            last = j


def test_one_barrier_serves_many_commands() -> None:
    whole = BUFFERS[0].view()
    halves = [View(whole.buffer, 0, 512), View(whole.buffer, 512, 512)]
    program = [(Binding(whole, WRITE),), *((Binding(half, READ),) for half in halves)]
    assert barriers(program) == [False, True, False]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (WRITE, READ, HazardKind.READ_AFTER_WRITE),
        (READ_WRITE, READ, HazardKind.READ_AFTER_WRITE),
        (WRITE, READ_WRITE, HazardKind.READ_AFTER_WRITE),
        (READ_WRITE, READ_WRITE, HazardKind.READ_AFTER_WRITE),
        (READ, WRITE, HazardKind.WRITE_AFTER_READ),
        (READ, READ_WRITE, HazardKind.WRITE_AFTER_READ),
        (WRITE, WRITE, HazardKind.WRITE_AFTER_WRITE),
        (READ_WRITE, WRITE, HazardKind.WRITE_AFTER_WRITE),
        (READ, READ, None),
    ],
)
def test_kinds(first: Access, second: Access, kind: HazardKind | None) -> None:
    tracker, view = HazardTracker(), BUFFERS[0].view()
    assert tracker.before((Binding(view, first),)) is None
    barrier = tracker.before((Binding(view, second),))
    assert (barrier and barrier.hazards[0].kind) == kind
    assert barrier is None or barrier.hazards[0].view == view


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (View(BUFFERS[0], 256, 256), False),
        (View(BUFFERS[0], 0, 1), True),
        (View(BUFFERS[0], 0, 512), True),
        (View(BUFFERS[1], 0, 256), False),
    ],
    ids=["behind", "first byte", "larger", "other buffer"],
)
def test_ranges(other: View, expected: bool) -> None:
    first = (Binding(View(BUFFERS[0], 0, 256), WRITE),)
    assert barriers([first, (Binding(other, WRITE),)]) == [False, expected]


def dispatch(*views: tuple[View, Access]) -> Dispatch:
    return Dispatch(Kernel("k", None), tuple(Binding(view, access) for view, access in views))


def test_projections_of_one_input_run_side_by_side() -> None:
    x, buffer = BUFFERS[0].view(0, 256), BUFFERS[1]
    recorder = DEVICE.recorder()
    recorder.dispatch(dispatch((x, WRITE)))
    for output in range(3):
        recorder.dispatch(dispatch((x, READ), (buffer.view(output * 256, 256), WRITE)))
    recorder.dispatch(dispatch((buffer.view(0, 768), READ_WRITE)))
    commands = recorder.finish().commands
    placed = [c.barrier is not None for c in commands if isinstance(c, DispatchCommand)]
    assert placed == [False, True, False, False, True]


def test_a_copy_is_a_read_and_a_write() -> None:
    a, b, c = (BUFFERS[0].view(offset, 256) for offset in (0, 256, 512))
    recorder = DEVICE.recorder()
    for source, target in ((a, b), (a, c), (b, a)):
        recorder.copy_region(source, target)
    commands = recorder.finish().commands
    placed = [c.barrier is not None for c in commands if isinstance(c, CopyCommand)]
    assert placed == [False, False, True]


def test_a_timestamp_makes_barriers_needless() -> None:
    view, timer = BUFFERS[0].view(), DEVICE.timer(1)
    recorder = DEVICE.recorder()
    recorder.dispatch(dispatch((view, WRITE)))
    recorder.timestamp(timer, 0)
    recorder.dispatch(dispatch((view, READ)))
    first, stamp, second = recorder.finish().commands
    assert isinstance(stamp, TimestampCommand)
    assert isinstance(first, DispatchCommand)
    assert isinstance(second, DispatchCommand)
    assert first.barrier is second.barrier is None


def test_buffers_are_told_apart_by_identity() -> None:
    twins = [Buffer(DEVICE, 256, "same", None) for _ in range(2)]
    program = [(Binding(twin.view(), WRITE),) for twin in twins]
    assert barriers(program) == [False, False]
