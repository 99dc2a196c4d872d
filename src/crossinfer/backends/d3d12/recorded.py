"""Recordings as closed command lists, ready to be executed again and again."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.commands import CommandList, CommandMemory, CommandPool
from crossinfer.backends.d3d12.constants import Heap
from crossinfer.backends.d3d12.descriptors import DescriptorLoan
from crossinfer.backends.d3d12.memory import Allocation, allocation_of, create_buffer
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Buffer, View


class EncodedRecording:
    """The parts of a recording, and the copies of parameters that go before them.

    When nobody refers to it any more, its command memory goes back to the pool, and what else it
    owns is released.
    """

    def __init__(
        self, pool: CommandPool, scratch: Allocation | None, descriptors: DescriptorLoan | None
    ) -> None:
        """Raises ComError."""
        self._pool = pool
        self._scratch = scratch
        self._descriptors = descriptors
        self._memory: CommandMemory = pool.take()
        given_back = weakref.finalize(self, pool.give_back, self._memory)
        given_back.atexit = False
        self._parts: list[ComObject] = []
        self._staging: Allocation | None = None
        self._parameter_copies: dict[int, ComObject] = {}
        self._results: Allocation | None = None
        self._result_places: list[tuple[int, int]] = []

    def add_part(self) -> CommandList:
        """A new open part at the end. Raises ComError."""
        part = self._memory.begin()
        self._parts.append(part.list)
        return part

    def set_parameters(self, target: Buffer, params: bytes) -> None:
        """Have the next submission copy `params` to the start of `target`. Raises ComError."""
        size = len(params)
        if self._staging is None:
            device = self._pool.native.device
            self._staging = create_buffer(device, Heap.UPLOAD, target.size_in_bytes)
        ctypes.memmove(self._staging.mapped, params, size)
        if size not in self._parameter_copies:
            commands = self._memory.begin()
            place = (allocation_of(target).resource, 0)
            commands.copy((self._staging.resource, 0), place, size)  # promotes from COMMON
            commands.end()
            self._parameter_copies[size] = commands.list

    def add_results(self, views: Sequence[View]) -> None:
        """A last part, which copies `views` to memory that the host sees. Raises ComError."""
        places, end = [], 0
        for view in views:
            places.append((end, view.size))
            end += align_up(view.size, VIEW_ALIGNMENT)
        self._results = create_buffer(self._pool.native.device, Heap.READBACK, end)
        self._result_places = places
        part = self.add_part()
        for view, (offset, size) in zip(views, places, strict=True):
            source = allocation_of(view.buffer).resource, view.offset
            part.copy(source, (self._results.resource, offset), size)  # promotes from COMMON
        part.end()

    def result(self, number: int) -> bytes:
        """What the last run brought; it has ended."""
        assert self._results is not None, "the HAL knows how many there are"
        offset, size = self._result_places[number]
        return ctypes.string_at(self._results.mapped + offset, size)

    def submit(self, parameter_bytes: int) -> int:
        """Run it; returns the fence's value at its end. Raises ComError."""
        first = [self._parameter_copies[parameter_bytes]] if parameter_bytes else []
        self._memory.last_use = self._pool.native.run([*first, *self._parts])
        return self._memory.last_use
