"""Recordings as command buffers, ready to be submitted again and again.

A recording is cut into parts of a limited number of commands. An operating system resets a GPU that
is busy with one submission for seconds, so parts are submitted one by one until their time is
known, and then as many at once as take a short time together. (32 commands of a large prefill on a
slow GPU take about half a second.)
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.commands import CommandBuffer, CommandPool
from crossinfer.backends.vulkan.descriptors import DescriptorSets
from crossinfer.backends.vulkan.memory import Allocation, Allocator, place_of
from crossinfer.backends.vulkan.transfers import copy_in
from crossinfer.hal.buffer import Buffer, View

SUBMISSION_S = 0.2
"""What a submission may take; operating systems lose patience after two seconds."""


class EncodedRecording:
    """The parts of a recording, and the copies of parameters that go before them.

    `started` is when it was submitted, on the clock of `time.perf_counter`. When nobody refers to
    the recording any more, what it owns goes once its device records again.
    """

    def __init__(self, pool: CommandPool, staging: Allocator, sets: DescriptorSets) -> None:
        self.started = 0.0
        self.seconds = math.inf
        """Its shortest run yet."""
        self._owned = _Owned(pool, staging, sets)
        self._parts_at_once = 1
        self._submissions: dict[int, list[Any]] = {}
        weakref.finalize(self, pool.device.destroy_later, self._owned.destroy)

    def add_part(self) -> CommandBuffer:
        """A new part at the end. Raises VulkanError."""
        part = self._owned.pool.allocate()
        self._owned.parts.append(part)
        return part

    def set_parameters(self, target: Buffer, params: bytes) -> None:
        """Have the next submission copy `params` to the start of `target`. Raises VulkanError."""
        owned, size = self._owned, len(params)
        if owned.memory is None:
            owned.memory = owned.staging.alloc(target.size_in_bytes)
        copy_in(owned.memory.address, params)
        if size not in owned.parameter_copies:
            commands = owned.parameter_copies[size] = owned.pool.allocate()
            commands.begin()
            commands.barrier()
            place = (owned.memory.buffer, owned.memory.offset)
            commands.copy(place, place_of(target.view()), size)
            commands.end()

    def add_results(self, memory: Allocator, views: Sequence[View]) -> None:
        """A last part, which copies `views` to memory that the host sees. Raises VulkanError."""
        owned = self._owned
        for view in views:
            owned.results.append((memory.alloc(view.size), view.size, memory))
        part = self.add_part()
        part.begin()
        part.barrier()
        for view, (target, size, _) in zip(views, owned.results, strict=True):
            part.copy(place_of(view), (target.buffer, target.offset), size)
        part.barrier_to_host()
        part.end()

    def result(self, number: int) -> bytes:
        """What the last run brought; it has ended."""
        memory, size, _ = self._owned.results[number]
        return ctypes.string_at(memory.address, size)

    def submissions(self, parameter_bytes: int) -> list[Any]:
        """What to submit, in order; made when it is first needed."""
        found = self._submissions.get(parameter_bytes)
        if found is None:
            parts, step = self._owned.parts, self._parts_at_once
            groups = [parts[start : start + step] for start in range(0, len(parts), step)]
            if parameter_bytes:
                groups[0] = [self._owned.parameter_copies[parameter_bytes], *groups[0]]
            found = self._submissions[parameter_bytes] = [_submission(group) for group in groups]
        return found

    def ended(self, now: float) -> None:
        """It was done by `now`: if that was soon, more of its parts may go at once."""
        seconds = now - self.started
        if seconds >= self.seconds:
            return
        self.seconds = seconds
        parts = len(self._owned.parts)
        at_once = max(1, min(parts, int(SUBMISSION_S * parts / max(seconds, 1e-9))))
        if at_once != self._parts_at_once:
            self._parts_at_once = at_once
            self._submissions.clear()


class _Owned:
    """What a recording has on the device."""

    def __init__(self, pool: CommandPool, staging: Allocator, sets: DescriptorSets) -> None:
        self.pool = pool
        self.staging = staging
        self.sets = sets
        self.parts: list[CommandBuffer] = []
        self.parameter_copies: dict[int, CommandBuffer] = {}
        self.memory: Allocation | None = None
        self.results: list[tuple[Allocation, int, Allocator]] = []

    def destroy(self) -> None:
        for commands in [*self.parts, *self.parameter_copies.values()]:
            self.pool.free(commands)
        if self.memory is not None:
            self.staging.free(self.memory)
        for memory, _, allocator in self.results:
            allocator.free(memory)
        self.sets.destroy()


def _submission(group: Sequence[CommandBuffer]) -> Any:
    """A reference to the structure, which is what is passed."""
    return ctypes.byref(
        vk.VkSubmitInfo(
            commandBufferCount=len(group), pCommandBuffers=vk.handles([c.handle for c in group])
        )
    )
