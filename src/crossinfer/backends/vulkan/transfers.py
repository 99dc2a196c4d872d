"""Uploads and downloads through memory that the host can see, in chunks."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.commands import CommandBuffer, CommandPool
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.memory import (
    DOWNLOAD_MEMORY,
    UPLOAD_MEMORY,
    Allocation,
    Allocator,
    Block,
)

CHUNK_BYTES = 16 << 20
SMALL_BYTES = 64 << 10
_SLOTS = 2
"""The device copies from one while the host fills the other."""
_RECORDED_DOWNLOADS = 64


class DeadlineError(Exception):
    """The device did not answer in time. Stays inside this backend."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds")


class _Slot:
    """Staging memory with a command buffer, and a fence that is signalled when it is free again."""

    def __init__(self, pool: CommandPool, memory: Allocation) -> None:
        self.memory = memory
        self.commands = pool.allocate()
        self.fence = pool.device.create("Fence", vk.VkFenceCreateInfo())
        self.busy = False


class Transfers:
    """Copies between host and device, in the order of the queue. Thread-safe.

    Raises VulkanError, DeadlineError.
    """

    def __init__(self, device: LogicalDevice, deadline_s: Callable[[], float]) -> None:
        self._device = device
        self._deadline_s = deadline_s
        self._pool = CommandPool(device)
        self._lock = threading.RLock()
        self._upload_memory = Allocator(device, UPLOAD_MEMORY)
        self._download_memory = Allocator(device, DOWNLOAD_MEMORY)
        self._uploads: dict[int, list[_Slot]] = {}
        self._download_slots: dict[int, _Slot] = {}
        self._recorded: OrderedDict[tuple[int, int, int], CommandBuffer] = OrderedDict()

    def write(self, target: Allocation, offset: int, data: memoryview) -> None:
        """Put `data` into the target; returns when it was read, the copy may still run."""
        with self._lock:
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                self._upload(target, offset + start, chunk)

    def read(self, source: Allocation, offset: int, size: int) -> bytes:
        with self._lock:
            if size <= SMALL_BYTES:
                return self._download_small(source, offset, size)
            slot, parts = self._download_slot(CHUNK_BYTES), []
            for start in range(0, size, CHUNK_BYTES):
                part = min(CHUNK_BYTES, size - start)
                _record_download(slot.commands, source, offset + start, slot.memory, part)
                parts.append(self._download(slot, slot.commands, part))
            return b"".join(parts)

    def run(self, record: Callable[[CommandBuffer], None]) -> None:
        """Record commands, run them and wait."""
        with self._lock:
            slot = self._download_slot(SMALL_BYTES)
            slot.commands.begin()
            record(slot.commands)
            slot.commands.end()
            self._submit(slot, slot.commands)
            self._wait(slot)

    def wait(self) -> None:
        """Wait for the copies that `write` left running."""
        with self._lock:
            for slots in self._uploads.values():
                for slot in slots:
                    self._wait(slot)

    def forget(self, block: Block) -> None:
        """A block is about to go away."""
        self.wait()
        with self._lock:
            for key in [key for key in self._recorded if key[0] == block.buffer]:
                self._pool.free(self._recorded.pop(key))

    def _upload(self, target: Allocation, offset: int, chunk: memoryview) -> None:
        size = SMALL_BYTES if len(chunk) <= SMALL_BYTES else CHUNK_BYTES
        slots = self._uploads.setdefault(size, [])
        while len(slots) < _SLOTS:
            slots.append(_Slot(self._pool, self._upload_memory.alloc(size)))
        slot = slots.pop(0)  # the one that was used longest ago
        slots.append(slot)
        self._wait(slot)
        copy_in(slot.memory.address, chunk)
        slot.commands.begin()
        slot.commands.barrier()
        place = (target.buffer, target.offset + offset)
        slot.commands.copy((slot.memory.buffer, slot.memory.offset), place, len(chunk))
        slot.commands.end()
        self._submit(slot, slot.commands)

    def _download_small(self, source: Allocation, offset: int, size: int) -> bytes:
        """The same few bytes are asked for after every step: their commands are kept."""
        slot = self._download_slot(SMALL_BYTES)
        key = (source.buffer, source.offset + offset, size)
        commands = self._recorded.get(key)
        if commands is None:
            if len(self._recorded) >= _RECORDED_DOWNLOADS:
                self._pool.free(self._recorded.popitem(last=False)[1])
            commands = self._pool.allocate()
            _record_download(commands, source, offset, slot.memory, size)
            self._recorded[key] = commands
        else:
            self._recorded.move_to_end(key)
        return self._download(slot, commands, size)

    def _download_slot(self, size: int) -> _Slot:
        if size not in self._download_slots:
            memory = self._download_memory.alloc(size)
            self._download_slots[size] = _Slot(self._pool, memory)
        return self._download_slots[size]

    def _download(self, slot: _Slot, commands: CommandBuffer, size: int) -> bytes:
        self._submit(slot, commands)
        self._wait(slot)
        return ctypes.string_at(slot.memory.address, size)

    def _submit(self, slot: _Slot, commands: CommandBuffer) -> None:
        self._device.submit(ctypes.byref(commands.submit_info), slot.fence)
        slot.busy = True

    def _wait(self, slot: _Slot) -> None:
        if not slot.busy:
            return
        deadline_s = self._deadline_s()
        if not self._device.wait(slot.fence, deadline_s):
            raise DeadlineError(deadline_s)
        self._device.reset(slot.fence)
        slot.busy = False


def copy_in(address: int, data: memoryview | bytes) -> None:
    """Copy bytes to memory that is mapped at `address`."""
    source = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8).ctypes.data
    ctypes.memmove(address, source, len(data))


def _record_download(
    commands: CommandBuffer, source: Allocation, offset: int, target: Allocation, size: int
) -> None:
    commands.begin()
    commands.barrier()
    place = (source.buffer, source.offset + offset)
    commands.copy(place, (target.buffer, target.offset), size)
    commands.barrier_to_host()
    commands.end()
