"""The reference device: slow, exact, and strict about barriers.

Commands between two barriers run in a random order on several threads, as hardware may run them,
so that a missing barrier shows as a wrong result. Weights are kept as the float32 values that their
storage stands for; everything else is kept as it is. Never optimised: it is the truth in every
test.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from crossinfer.backends.reference.kernels import run_dispatch, weight_storage
from crossinfer.backends.reference.lowering import lower
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceError, OutOfDeviceMemory
from crossinfer.formats.blocks import StorageType, dequantize
from crossinfer.graph.op import Op
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.fence import Fence
from crossinfer.hal.hooks import Data, raw_bytes
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Lowering, OpDescription, Operand
from crossinfer.hal.recording import (
    Command,
    CopyCommand,
    DispatchCommand,
    Recording,
    TimestampCommand,
)
from crossinfer.hal.timer import Timer

_POISON = 0xFF  # NaN in every float type, -1 in int32: memory that nobody wrote must not look good


class ReferenceDevice(Device):
    """Runs on the host in NumPy. `handle`s are uint8 arrays.

    `lacks` names ops that this device pretends not to have, `fusions` fusion patterns that it asks
    the plan for, `seed` the order in which unordered commands run.
    """

    def __init__(
        self,
        *,
        name: str = "reference",
        threads: int | None = None,
        lacks: Collection[str] = (),
        fusions: Collection[str] = (),
        memory_bytes: int | None = None,
        seed: int | None = None,
        deadline_s: float = 600.0,
    ) -> None:
        super().__init__(self.describe(name, memory_bytes), deadline_s=deadline_s)
        self.fusions = frozenset(fusions)
        self._lacks = frozenset(lacks)
        self._random = random.Random(seed)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="crossinfer-reference")
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(
            target=self._work, name="crossinfer-reference-queue", daemon=True
        )
        self._worker.start()

    @staticmethod
    def describe(name: str = "reference", memory_bytes: int | None = None) -> DeviceInfo:
        return DeviceInfo(
            name=name,
            kind=DeviceKind.REFERENCE,
            description="float64 meaning of every op, on the host",
            driver=f"numpy {np.__version__}",
            memory_bytes=memory_bytes,
        )

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        if not isinstance(op, Op) or op.name in self._lacks:
            return ()
        return (lower(op, operands),)

    def packed_size(self, shape: Sequence[int], dtype: StorageType, role: Role) -> int:
        return weight_storage(dtype, role).bytes_for(shape)

    def _pack(
        self, data: Data, shape: Sequence[int], dtype: StorageType, role: Role
    ) -> Iterator[Data]:
        if weight_storage(dtype, role) is dtype:
            yield from super()._pack(data, shape, dtype, role)
            return
        raw, row_bytes = raw_bytes(data), dtype.bytes_for(shape[-1:])
        step = max(1, (4 << 20) // row_bytes) * row_bytes
        for start in range(0, len(raw), step):
            rows = raw[start : start + step]
            yield dequantize(rows, dtype, (len(rows) // row_bytes, shape[-1]))

    def _alloc(self, size: int) -> object:
        try:
            return np.full(size, _POISON, dtype=np.uint8)
        except MemoryError:
            raise OutOfDeviceMemory(
                f"Device {self.info.name} cannot allocate {size} bytes: the host has no such "
                f"memory left, and {self.memory_in_use} bytes are in use already."
            ) from None

    def _free(self, buffer: Buffer) -> None:
        buffer.handle = None

    def _write(self, view: View, data: Data) -> None:
        raw = np.frombuffer(raw_bytes(data), dtype=np.uint8)
        _bytes_of(view)[: raw.size] = raw

    def _read(self, view: View) -> bytes:
        return _bytes_of(view).tobytes()

    def _encode(self, commands: tuple[Command, ...], parameters: Buffer | None) -> object:
        """The commands in groups; those of one group may run at the same time."""
        del parameters
        groups: list[list[Command]] = [[]]
        for command in commands:
            if isinstance(command, TimestampCommand):
                groups += [[command], []]
            elif command.barrier is not None:
                groups.append([command])
            else:
                groups[-1].append(command)
        return [group for group in groups if group]

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        def run() -> None:
            if params and recording.parameters is not None:
                self._write(recording.parameters.view(), params)
            groups = recording.handle
            assert isinstance(groups, list)
            for group in groups:
                self._run_group(group)

        def run_and_signal() -> None:
            try:
                run()
            except DeviceError as error:
                fence.signal(error)
            except Exception as error:  # a bug in a kernel must reach the caller, not hang it
                self.lose(f"{type(error).__name__}: {error}")
            fence.signal()

        self._queue.put(run_and_signal)

    def _run_group(self, group: Sequence[Command]) -> None:
        if len(group) == 1:
            _run(group[0])
            return
        shuffled = self._random.sample(group, len(group))
        for done in [self._pool.submit(_run, command) for command in shuffled]:
            done.result()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            task()

    def _make_timer(self, capacity: int) -> object:
        return [None] * capacity

    def _read_timer(self, timer: Timer) -> list[float | None]:
        return list(_entries(timer))

    def _close(self) -> None:
        self._queue.put(None)
        self._worker.join()
        self._pool.shutdown()


def _run(command: Command) -> None:
    match command:
        case DispatchCommand(dispatch):
            run_dispatch(dispatch, [_bytes_of(b.view) for b in dispatch.bindings])
        case CopyCommand(source, destination):
            _bytes_of(destination)[:] = _bytes_of(source)
        case TimestampCommand(timer, index):
            _entries(timer)[index] = time.perf_counter()


def _bytes_of(view: View) -> Array:
    memory = view.buffer.handle
    assert isinstance(memory, np.ndarray)
    return memory[view.offset : view.end]


def _entries(timer: Timer) -> list[float | None]:
    assert isinstance(timer.handle, list)
    return timer.handle
