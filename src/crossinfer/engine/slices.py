"""Generation in slices, for a host whose frames must not be held up.

The engine's thread works as ever, but before it hands dispatches to a device it asks a gate. The
gate lets one piece through for each call of `SliceGate.step`, which the host makes when a frame has
time left. The call returns when the piece is submitted; one that comes while the last piece still
runs submits nothing. So there is never more on the device than one piece, and what is computed is
the same as without slices: the same dispatches in the same order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakKeyDictionary

from crossinfer.core.records import record
from crossinfer.engine.slice_cut import UNBOUNDED, Bounds, CostModel, end_of_piece, kind_of
from crossinfer.hal.buffer import Buffer
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.kernel import Dispatch
from crossinfer.hal.recording import Recording
from crossinfer.hal.timer import Timer

# Recordings of pieces kept for a segment, in dispatches: cuts vary, since predictions do.
_KEPT_SEGMENTS = 4


@record
class SliceResult:
    """What a call of `step` did."""

    dispatches: int
    """Kernel runs that it handed to a device."""
    idle: bool
    """Nothing is left to compute."""


@dataclasses.dataclass
class Turn:
    """Leave to submit one piece within `bounds`; `dispatches` is then set to what it held."""

    bounds: Bounds
    dispatches: int = 0


class SliceGate:
    """Where the engine's thread and the host's calls meet. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._one_call = threading.Lock()
        self._parked = False
        self._turn: Turn | None = None
        self._open = False
        self._last_bounds: Bounds | None = None
        self._costs: WeakKeyDictionary[Device, CostModel] = WeakKeyDictionary()

    def costs(self, device: Device) -> CostModel:
        """What has been measured on a device."""
        return self._costs.setdefault(device, CostModel())

    @property
    def expected(self) -> Bounds | None:
        """The bounds that the next call will probably have: those of the last one."""
        return self._last_bounds

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for a call of `step`, which waits for the end of the block. For one thread."""
        with self._changed:
            self._parked = True
            while self._turn is None and not self._open:
                self._changed.wait()
            self._parked = False
            turn = self._turn or Turn(UNBOUNDED)
        try:
            yield turn
        finally:
            with self._changed:
                self._turn = None
                self._changed.notify_all()

    def step(self, bounds: Bounds, is_idle: Callable[[], bool]) -> SliceResult:
        """Let one piece through, if the engine's thread waits to submit one."""
        with self._one_call, self._changed:
            if not self._parked:
                return SliceResult(0, is_idle())
            self._turn = turn = Turn(bounds)
            self._last_bounds = bounds
            self._parked = False
            self._changed.notify_all()
            while self._turn is turn:
                self._changed.wait()
            return SliceResult(turn.dispatches, idle=False)

    def open(self) -> None:
        """Let everything through from now on, so that the engine can end."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class SlicedSegment:
    """The dispatches of one segment of a plan, submitted in pieces."""

    def __init__(
        self,
        device: Device,
        dispatches: Sequence[Dispatch],
        parameters: Buffer | None,
        gate: SliceGate,
    ) -> None:
        self._device = device
        self._dispatches = tuple(dispatches)
        self._kinds = [kind_of(dispatch) for dispatch in self._dispatches]
        self._parameters = parameters
        self._gate = gate
        self._costs = gate.costs(device)
        self._pieces: OrderedDict[tuple[int, int], Recording] = OrderedDict()
        self._timer: Timer | None = None

    def submit(self, params: bytes) -> Fence:
        """Submit all dispatches, a piece each turn, and wait for each; the last one's fence.

        `params` goes into the parameter buffer before the first. Raises DeviceError.
        """
        start = 0
        while True:
            if (expected := self._gate.expected) is not None:
                self._piece(start, expected)  # recorded now, it does not hold up the host
            with self._gate.turn() as turn:
                end, recording = self._piece(start, turn.bounds)
                fence = self._device.submit(recording, params)
                turn.dispatches = end - start
            fence.wait()
            if self._timer is not None:
                took = self._timer.elapsed(0, 1)
                self._costs.learn(self._kinds[start:end], took, turn.bounds.seconds)
            if end == len(self._dispatches):
                return fence
            start, params = end, b""

    def _piece(self, start: int, bounds: Bounds) -> tuple[int, Recording]:
        """The end of the piece from `start`, and its recording.

        Recording takes longer than running, so a shorter piece that is recorded will do.
        """
        if bounds.seconds is not None and self._timer is None:
            self._timer = self._device.timer(2)
            self._pieces.clear()  # they have no timestamps
        longest = end_of_piece(self._kinds, start, bounds, self._costs)
        recorded = [end for first, end in self._pieces if first == start and end <= longest]
        end = max(recorded, default=start)
        if 2 * (end - start) < longest - start or not recorded:
            end = longest
            self._pieces[start, end] = self._record(start, end)
        self._pieces.move_to_end((start, end))
        self._forget()
        return end, self._pieces[start, end]

    def _record(self, start: int, end: int) -> Recording:
        recorder = self._device.recorder(self._parameters)
        if self._timer is not None:
            recorder.timestamp(self._timer, 0)
        for dispatch in self._dispatches[start:end]:
            recorder.dispatch(dispatch)
        if self._timer is not None:
            recorder.timestamp(self._timer, 1)
        return recorder.finish()

    def _forget(self) -> None:
        while sum(end - start for start, end in self._pieces) > (
            _KEPT_SEGMENTS * len(self._dispatches)
        ):
            self._pieces.popitem(last=False)
