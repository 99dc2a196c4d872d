"""The null device: memory that is only counted, commands that are never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossinfer.graph.op import Op
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Kernel, LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.hal.recording import Command, Recording, TimestampCommand
from crossinfer.hal.timer import Timer


class NullDevice(Device):
    """Downloads are zeros; a timestamp is 0.0 once a recording with it was submitted."""

    def __init__(self) -> None:
        super().__init__(self.describe())

    @staticmethod
    def describe() -> DeviceInfo:
        return DeviceInfo("null", DeviceKind.SIMULATED, "records, executes nothing", "none")

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        if not isinstance(op, Op):
            return ()
        kernel = Kernel(op.variant(operands), None)
        return (Lowering((LoweredDispatch(kernel, op.arguments(operands)),)),)

    def _alloc(self, size: int) -> object:
        del size
        return None

    def _free(self, buffer: Buffer) -> None:
        pass

    def _write(self, view: View, data: Data) -> None:
        pass

    def _read(self, view: View) -> bytes:
        return bytes(view.size)

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        del commands, parameters
        return None

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        del params
        for command in recording.commands:
            if isinstance(command, TimestampCommand):
                _entries(command.timer)[command.index] = 0.0
        fence.signal()

    def _make_timer(self, capacity: int) -> object:
        return [None] * capacity

    def _read_timer(self, timer: Timer) -> list[float | None]:
        return list(_entries(timer))

    def _close(self) -> None:
        pass


def _entries(timer: Timer) -> list[float | None]:
    assert isinstance(timer.handle, list)
    return timer.handle
