"""Uploads and downloads through memory that the host can see, in chunks."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.commands import CommandList, CommandMemory, Place
from crossinfer.backends.d3d12.constants import Heap
from crossinfer.backends.d3d12.memory import Allocation, create_buffer
from crossinfer.backends.d3d12.native import NativeDevice

CHUNK_BYTES = 16 << 20
SMALL_BYTES = 64 << 10
_RING_CHUNKS = 2
"""The device copies from one while the host fills the other."""
_RECORDED_DOWNLOADS = 64


class DeadlineError(Exception):
    """The device did not answer in time. Stays inside this backend."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds")


class Transfers:
    """Copies between host and device, in the order of the queue. Thread-safe.

    Raises ComError, DeadlineError.
    """

    def __init__(self, native: NativeDevice, deadline_s: Callable[[], float]) -> None:
        self._native = native
        self._deadline_s = deadline_s
        self._lock = threading.RLock()
        self._rings: dict[int, _UploadRing] = {}
        self._readback: dict[int, Allocation] = {}
        self._once: CommandMemory | None = None
        self._recorded: OrderedDict[tuple[int, int, int], tuple[CommandMemory, ComObject]] = (
            OrderedDict()
        )

    def write(self, target: Allocation, offset: int, data: memoryview) -> None:
        """Put `data` into the target; returns when it was read, the copy may still run."""
        with self._lock:
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                size = SMALL_BYTES if len(chunk) <= SMALL_BYTES else CHUNK_BYTES
                if size not in self._rings:
                    self._rings[size] = _UploadRing(self._native, size)
                self._wait(self._rings[size].next_use())
                self._rings[size].upload((target.resource, offset + start), chunk)

    def read(self, source: Allocation, offset: int, size: int) -> bytes:
        with self._lock:
            if size <= SMALL_BYTES:
                return self._read_small(source, offset, size)
            memory, parts = self._readback_memory(CHUNK_BYTES), []
            for start in range(0, size, CHUNK_BYTES):
                part = min(CHUNK_BYTES, size - start)
                place = (source.resource, offset + start)
                self.run_once(_Copy(place, (memory.resource, 0), part))
                parts.append(ctypes.string_at(memory.mapped, part))
            return b"".join(parts)

    def run_once(self, record: Callable[[CommandList], None]) -> None:
        """Record a list, run it and wait. All buffers are in COMMON when it starts."""
        with self._lock:
            if self._once is None:
                self._once = CommandMemory(self._native)
            self._wait(self._once.last_use)
            self._once.reset()
            commands = self._once.begin()
            try:
                record(commands)
            finally:
                commands.end()  # an open list would keep its allocator for ever
            self._once.last_use = self._native.run([commands.list])
            self._wait(self._once.last_use)

    def forget(self, memory: Allocation) -> None:
        """A buffer is about to go away."""
        with self._lock:
            address = memory.resource.address
            for key in [key for key in self._recorded if key[0] == address]:
                del self._recorded[key]  # each was waited for when it ran
            for ring in self._rings.values():
                self._wait(ring.last_use)

    def _read_small(self, source: Allocation, offset: int, size: int) -> bytes:
        """The same few bytes are asked for after every step: their commands are kept."""
        memory = self._readback_memory(SMALL_BYTES)
        key = (source.resource.address, offset, size)
        if key not in self._recorded:
            while len(self._recorded) >= _RECORDED_DOWNLOADS:
                self._recorded.popitem(last=False)
            own = CommandMemory(self._native)
            commands = own.begin()
            commands.copy((source.resource, offset), (memory.resource, 0), size)
            commands.end()
            self._recorded[key] = own, commands.list
        self._recorded.move_to_end(key)
        self._wait(self._native.run([self._recorded[key][1]]))
        return ctypes.string_at(memory.mapped, size)

    def _readback_memory(self, size: int) -> Allocation:
        if size not in self._readback:
            self._readback[size] = create_buffer(self._native.device, Heap.READBACK, size)
        return self._readback[size]

    def _wait(self, value: int) -> None:
        deadline_s = self._deadline_s()
        if not self._native.wait(value, deadline_s):
            raise DeadlineError(deadline_s)


class _UploadRing:
    """Upload memory of a few chunks that are used in turn, each with a list that copies out of it.

    A chunk is filled again when the fence says that its copy has ended.
    """

    def __init__(self, native: NativeDevice, chunk_bytes: int) -> None:
        self._native = native
        self._chunk_bytes = chunk_bytes
        self._memory = create_buffer(native.device, Heap.UPLOAD, _RING_CHUNKS * chunk_bytes)
        self._lists = [CommandMemory(native) for _ in range(_RING_CHUNKS)]
        self._position = 0

    @property
    def last_use(self) -> int:
        """The fence's value when every copy has ended."""
        return max(commands.last_use for commands in self._lists)

    def next_use(self) -> int:
        """The fence's value when the next chunk may be filled."""
        return self._lists[self._position].last_use

    def upload(self, target: Place, data: memoryview) -> None:
        """Fill the chunk that was used longest ago, and have it copied to the target."""
        place = self._position * self._chunk_bytes
        copy_in(self._memory.mapped + place, data)
        memory = self._lists[self._position]
        memory.reset()
        commands = memory.begin()
        commands.copy((self._memory.resource, place), target, len(data))
        commands.end()
        memory.last_use = self._native.run([commands.list])
        self._position = (self._position + 1) % _RING_CHUNKS


@dataclasses.dataclass(frozen=True)
class _Copy:
    """Records one copy."""

    source: Place
    target: Place
    size: int

    def __call__(self, commands: CommandList) -> None:
        commands.copy(self.source, self.target, self.size)


def copy_in(address: int, data: memoryview) -> None:
    """Copy bytes to memory that is mapped at `address`."""
    ctypes.memmove(address, np.frombuffer(data, np.uint8).ctypes.data, len(data))
