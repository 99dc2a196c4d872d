"""A device that fails on purpose, so that everything above can show how it copes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceLost, OutOfDeviceMemory
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Access, Binding, Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.kernel import Dispatch, Lowering, OpDescription, Operand
from crossinfer.hal.recording import (
    Command,
    CopyCommand,
    DispatchCommand,
    Recording,
    TimestampCommand,
)
from crossinfer.hal.timer import Timer


class FaultKind(enum.Enum):
    LOST = "lost"
    HANG = "hang"
    WRONG_RESULT = "wrong result"
    OUT_OF_MEMORY = "out of memory"


@dataclasses.dataclass
class Fault:
    """Strikes at the `at`-th dispatch (from 1) of the kernels whose name starts so.

    `shape` limits it to dispatches of an op with these operands (a part of `Dispatch.shape`);
    `always` lets it strike at every later one too, as a driver that is wrong does. It keeps its
    count when it is given to the next device, as a driver does when a device is made again.
    """

    kind: FaultKind
    kernel: str
    at: int = 1
    seen: int = 0
    shape: str = ""
    always: bool = False

    def strikes(self, dispatch: Dispatch) -> bool:
        if not dispatch.kernel.name.startswith(self.kernel) or self.shape not in dispatch.shape:
            return False
        self.seen += 1
        return self.seen == self.at or (self.always and self.seen > self.at)


class FaultyDevice(Device):
    """Wraps any device. Its buffers' handles are the inner device's buffers.

    Commands run on the inner device at submission, in as many parts as the faults cut them into;
    closing closes the inner device. `info` lets it pass for another device.
    """

    def __init__(
        self, inner: Device, faults: Sequence[Fault], info: DeviceInfo | None = None
    ) -> None:
        super().__init__(info or inner.info, deadline_s=inner.deadline_s)
        self.fusions = inner.fusions
        self.one_access_per_buffer = inner.one_access_per_buffer
        self._inner = inner
        self._faults = faults
        self._hangs = False

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return self._inner.lower(op, operands)

    def allow_rounding(self) -> None:
        self._inner.allow_rounding()

    def refusal(self, op: OpDescription, operands: Mapping[str, Operand]) -> str:
        return self._inner.refusal(op, operands)

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        return self._inner.packed_size(shape, dtype, role)

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        return self._inner._pack(data, shape, dtype, role)

    def _kv_block_view(self, cache: Buffer, shape: Sequence[int], dtype: DType, block: int) -> View:
        view = self._inner._kv_block_view(_inner_buffer(cache), shape, dtype, block)
        return View(cache, view.offset, view.size)

    def _kv_block_values(self, raw: bytes, shape: Sequence[int], dtype: DType) -> Array:
        return self._inner._kv_block_values(raw, shape, dtype)

    def _kv_block_bytes(self, values: Array, dtype: DType) -> Array:
        return self._inner._kv_block_bytes(values, dtype)

    def _alloc(self, size: int) -> object:
        return self._inner.alloc((size // DType.I32.block_bytes,), DType.I32)

    def _free(self, buffer: Buffer) -> None:
        self._inner.free(_inner_buffer(buffer))

    def _write(self, view: View, data: Data) -> None:
        self._inner.write(_inner_view(view), data)

    def _read(self, view: View) -> bytes:
        return self._inner.download(_inner_view(view))

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        del commands, parameters
        return None

    def _make_timer(self, capacity: int) -> object:
        return self._inner.timer(capacity)

    def _read_timer(self, timer: Timer) -> list[float | None]:
        return _inner_timer(timer).read()

    def _close(self) -> None:
        self._inner.close()

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        if self._hangs:
            return  # a queue that hangs runs nothing that comes after
        try:
            if self._run_until_fault(recording, params):
                fence.signal()
        except DeviceLost as error:
            self.lose(error.reason)

    def _run_until_fault(self, recording: Recording, params: bytes) -> bool:
        """Whether the recording ran to its end."""
        if params and recording.parameters is not None:
            self._inner.write(_inner_buffer(recording.parameters).view(), params)
        start = 0
        for position, command in enumerate(recording.commands):
            fault = self._strike(command)
            if fault is None or not isinstance(command, DispatchCommand):
                continue
            match fault.kind:
                case FaultKind.LOST:
                    self.lose("a fault was injected")
                    return False
                case FaultKind.HANG:
                    self._hangs = True
                    return False
                case FaultKind.OUT_OF_MEMORY:
                    raise OutOfDeviceMemory(
                        f"Device {self.info.name} has no memory to run "
                        f"{command.dispatch.kernel.name}: a fault was injected."
                    )
                case FaultKind.WRONG_RESULT:
                    self._run(recording.commands[start : position + 1])
                    self._corrupt(command)
                    start = position + 1
        self._run(recording.commands[start:])
        return True

    def _strike(self, command: Command) -> Fault | None:
        if not isinstance(command, DispatchCommand):
            return None
        # Every fault counts every dispatch, so that "the n-th" means the same beside others.
        struck = [fault for fault in self._faults if fault.strikes(command.dispatch)]
        return struck[0] if struck else None

    def _run(self, commands: Sequence[Command]) -> None:
        executor = Executor(self._inner)
        for command in commands:
            match command:
                case DispatchCommand(dispatch):
                    bindings = tuple(
                        Binding(_inner_view(binding.view), binding.access)
                        for binding in dispatch.bindings
                    )
                    executor.dispatch(dataclasses.replace(dispatch, bindings=bindings))
                case CopyCommand(source, destination):
                    executor.copy_region(_inner_view(source), _inner_view(destination))
                case TimestampCommand(timer, index):
                    executor.timestamp(_inner_timer(timer), index)
        executor.submit_and_wait()

    def _corrupt(self, command: DispatchCommand) -> None:
        """Flip bits in everything that the dispatch wrote, so that each float32 is off by a lot."""
        for binding in command.dispatch.bindings:
            if Access.WRITE in binding.access:
                view = _inner_view(binding.view)
                data = np.frombuffer(self._inner.download(view), dtype=np.uint8).copy()
                data[2::4] ^= 0x55
                self._inner.write(view, data)


def _inner_buffer(buffer: Buffer) -> Buffer:
    assert isinstance(buffer.handle, Buffer)
    return buffer.handle


def _inner_view(view: View) -> View:
    return View(_inner_buffer(view.buffer), view.offset, view.size)


def _inner_timer(timer: Timer) -> Timer:
    assert isinstance(timer.handle, Timer)
    return timer.handle
