"""Recorders turn calls into an immutable list of commands with barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossinfer.core.errors import InFlight, InvalidUse
from crossinfer.core.records import record
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Access, Binding, Buffer, View
from crossinfer.hal.hazards import Barrier, HazardTracker
from crossinfer.hal.kernel import MAX_BINDINGS, MAX_CONSTANT_BYTES, Dispatch

if TYPE_CHECKING:
    from crossinfer.hal.device import Device
    from crossinfer.hal.fence import Fence
    from crossinfer.hal.timer import Timer


@record
class DispatchCommand:
    """Runs a kernel."""

    dispatch: Dispatch
    barrier: Barrier | None


@record
class CopyCommand:
    """Copies `source` to `destination`; both have the same size."""

    source: View
    destination: View
    barrier: Barrier | None


@record
class TimestampCommand:
    """Writes the time into entry `index` of `timer`, once all commands before have finished."""

    timer: Timer
    index: int


Command = DispatchCommand | CopyCommand | TimestampCommand


class Recording:
    """An immutable list of commands, ready to be submitted again and again."""

    def __init__(
        self,
        device: Device,
        commands: tuple[Command, ...],
        parameters: Buffer | None,
        results: tuple[View, ...] = (),
    ) -> None:
        self.device = device
        self.commands = commands
        self.parameters = parameters
        self.results = results
        """What the recording brings to the host when it has run."""
        self.handle: object = None
        self.fence: Fence | None = None
        self.buffers = frozenset(
            view.buffer for command in commands for view in _views(command)
        ) | {view.buffer for view in results}
        if parameters is not None:
            self.buffers |= {parameters}
        self.frees_seen = -1
        """`Device.submit` found no freed buffer when so many had been freed in all."""

    @property
    def in_flight(self) -> bool:
        return self.fence is not None and not self.fence.done

    def read_result(self, number: int) -> bytes:
        """The bytes of a result, as its last submission left them.

        Raises DeviceLost, and InvalidUse if there was none or it is in flight.
        """
        return self.device.read_result(self, number)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels of the recording, in order, each once."""
        return tuple(dict.fromkeys(run.kernel for run in self.runs))

    @property
    def runs(self) -> tuple[InFlight, ...]:
        """The recording's dispatches, as an error names them."""
        dispatches = (c.dispatch for c in self.commands if isinstance(c, DispatchCommand))
        return tuple(InFlight(d.kernel.name, d.label, d.shape) for d in dispatches)


def check_submission(recording: Recording, params: bytes, device: Device) -> None:
    """Raises InvalidUse unless `device` may run `recording` now, with `params` before."""
    if recording.device is not device:
        raise InvalidUse(f"The recording was made for {recording.device.info.name}.")
    if recording.in_flight:
        raise InvalidUse("The recording is in flight already; wait for its fence.")
    if params:
        if recording.parameters is None:
            raise InvalidUse("The recording has no buffer for the parameters given.")
        if len(params) > recording.parameters.size_in_bytes:
            raise InvalidUse(
                f"{len(params)} bytes of parameters were given; {recording.parameters} is smaller."
            )


def _views(command: Command) -> tuple[View, ...]:
    match command:
        case DispatchCommand(dispatch):
            return tuple(binding.view for binding in dispatch.bindings)
        case CopyCommand(source, destination):
            return (source, destination)
        case TimestampCommand():
            return ()


class Recorder:
    """Records commands for one device. Made by `Device.recorder`; used by one thread."""

    def __init__(self, device: Device, parameters: Buffer | None) -> None:
        self._device = device
        self._parameters = parameters
        self._commands: list[Command] = []
        self._results: list[View] = []
        self._hazards = HazardTracker()
        self._finished = False

    def dispatch(self, dispatch: Dispatch) -> None:
        """Append a kernel run. Raises InvalidUse."""
        self._check_open()
        _check_dispatch(dispatch)
        for binding in dispatch.bindings:
            self._device.check_buffer(binding.view.buffer)
        barrier = self._hazards.before(dispatch.bindings)
        self._commands.append(DispatchCommand(dispatch, barrier))

    def copy_region(self, source: View, destination: View) -> None:
        """Append a copy between two ranges of equal size. Raises InvalidUse."""
        self._check_open()
        self._device.check_buffer(source.buffer)
        self._device.check_buffer(destination.buffer)
        if source.size != destination.size:
            raise InvalidUse(
                f"A copy goes from {source.size} bytes of {source.buffer} to {destination.size} "
                f"bytes of {destination.buffer}; the sizes must be equal."
            )
        if source.overlaps(destination):
            raise InvalidUse(f"A copy within {source.buffer} overlaps itself.")
        _check_alignment(source, "The source of a copy")
        _check_alignment(destination, "The destination of a copy")
        barrier = self._hazards.before(
            (Binding(source, Access.READ), Binding(destination, Access.WRITE))
        )
        self._commands.append(CopyCommand(source, destination, barrier))

    def timestamp(self, timer: Timer, index: int) -> None:
        """Append a timestamp into an entry of `timer`; it drains the queue. Raises InvalidUse."""
        self._check_open()
        if timer.device is not self._device:
            raise InvalidUse("The timer belongs to another device.")
        if index not in range(timer.capacity):
            raise InvalidUse(f"The timer has entries 0 to {timer.capacity - 1}, not {index}.")
        self._hazards.clear()
        self._commands.append(TimestampCommand(timer, index))

    def result(self, view: View) -> int:
        """Have the recording bring a few bytes to the host at its end; gives their number.

        They are read by `Recording.read_result`, without another submission. Raises InvalidUse.
        """
        self._check_open()
        self._device.check_buffer(view.buffer)
        _check_alignment(view, "A result")
        self._results.append(view)
        return len(self._results) - 1

    def finish(self) -> Recording:
        """The recording; the recorder cannot be used any more."""
        self._check_open()
        self._finished = True
        return self._device.encode(tuple(self._commands), self._parameters, tuple(self._results))

    def _check_open(self) -> None:
        if self._finished:
            raise InvalidUse("The recorder is finished; ask the device for a new one.")


def _check_dispatch(dispatch: Dispatch) -> None:
    name = dispatch.kernel.name
    if len(dispatch.bindings) > MAX_BINDINGS:
        raise InvalidUse(
            f"Kernel {name} has {len(dispatch.bindings)} views; at most {MAX_BINDINGS} are allowed."
        )
    if len(dispatch.constants) > MAX_CONSTANT_BYTES:
        raise InvalidUse(
            f"Kernel {name} has {len(dispatch.constants)} bytes of constants; "
            f"at most {MAX_CONSTANT_BYTES} are allowed."
        )
    if len(dispatch.grid) != 3 or min(dispatch.grid) < 1 or max(dispatch.grid) >= 1 << 32:
        raise InvalidUse(
            f"Kernel {name} has the grid {dispatch.grid}; sizes are at least 1 and below 2^32."
        )
    for number, binding in enumerate(dispatch.bindings):
        _check_alignment(binding.view, "View %d of kernel %s", number, name)
        others = enumerate(dispatch.bindings) if binding.writes else ()
        for other_number, other in others:
            if other_number != number and binding.view.overlaps(other.view):
                raise InvalidUse(
                    f"Kernel {name} has two views of the same bytes of {binding.view.buffer} and "
                    "writes through one; memory that is read and written is one READ_WRITE view."
                )


def _check_alignment(view: View, what: str, *names: object) -> None:
    """Messages call the view `what % names`, put together for them alone: thousands are checked."""
    if view.offset % VIEW_ALIGNMENT:
        raise InvalidUse(
            f"{what % names} starts at byte {view.offset} of {view.buffer}; "
            f"offsets are multiples of {VIEW_ALIGNMENT}."
        )
