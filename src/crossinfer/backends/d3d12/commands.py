"""Command lists, the allocators behind them, and the few commands that this backend records."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import (
    ALL_SUBRESOURCES,
    QUERY_TIMESTAMP,
    BarrierType,
)
from crossinfer.backends.d3d12.interfaces import (
    ID3D12CommandAllocator,
    ID3D12GraphicsCommandList,
)
from crossinfer.backends.d3d12.native import NativeDevice
from crossinfer.backends.d3d12.pipelines import Pipeline
from crossinfer.backends.d3d12.states import BarrierRecord, Transition
from crossinfer.backends.d3d12.structures import D3D12_RESOURCE_BARRIER
from crossinfer.hal.kernel import Grid

Place = tuple[ComObject, int]
"""A resource and an offset in it, in bytes."""


class CommandList:
    """Records commands between `begin` and `end`. Raises ComError."""

    def __init__(self, recorded: ComObject) -> None:
        self.list = recorded
        self._pipeline: Pipeline | None = None

    def end(self) -> None:
        self.list.Close()

    def forget_state(self) -> None:
        """Somebody else recorded here: root signature and pipeline are unknown."""
        self._pipeline = None

    def barriers(self, records: Sequence[BarrierRecord]) -> None:
        """All of them by one call; nothing for none."""
        if records:
            array = (D3D12_RESOURCE_BARRIER * len(records))(*map(_structure, records))
            self.list.ResourceBarrier(len(records), array)

    def copy(self, source: Place, target: Place, size: int) -> None:
        """Copy `size` bytes."""
        self.list.CopyBufferRegion(*target, *source, size)

    def dispatch(
        self, pipeline: Pipeline, constants: bytes, addresses: Sequence[int], grid: Grid
    ) -> None:
        """Run a pipeline on memory at these addresses: of its read views, then the written ones."""
        if self._pipeline is None or self._pipeline.root_signature is not pipeline.root_signature:
            self.list.SetComputeRootSignature(pipeline.root_signature)
        if self._pipeline is not pipeline:
            self.list.SetPipelineState(pipeline.state)
        self._pipeline = pipeline
        if constants:
            words = -(-len(constants) // 4)
            self.list.SetComputeRoot32BitConstants(0, words, constants.ljust(4 * words, b"\0"), 0)
        first = 1 if constants else 0
        for number, address in enumerate(addresses):
            if number < pipeline.reads:
                self.list.SetComputeRootShaderResourceView(first + number, address)
            else:
                self.list.SetComputeRootUnorderedAccessView(first + number, address)
        self.list.Dispatch(*grid)

    def timestamp(self, queries: ComObject, index: int) -> None:
        """The time when everything before has finished."""
        self.list.EndQuery(queries, QUERY_TIMESTAMP, index)

    def resolve_timestamps(
        self, queries: ComObject, first: int, count: int, target: ComObject
    ) -> None:
        """Copy times to where the host can read them, at the same places."""
        self.list.ResolveQueryData(queries, QUERY_TIMESTAMP, first, count, target, 8 * first)


def _structure(record: BarrierRecord) -> D3D12_RESOURCE_BARRIER:
    if isinstance(record, Transition):
        made = D3D12_RESOURCE_BARRIER(Type=BarrierType.TRANSITION)
        made.Transition.pResource = record.resource
        made.Transition.Subresource = ALL_SUBRESOURCES
        made.Transition.StateBefore = record.before
        made.Transition.StateAfter = record.after
    else:
        made = D3D12_RESOURCE_BARRIER(Type=BarrierType.UAV)
        made.Transition.pResource = record.resource
    return made


class CommandMemory:
    """An allocator with the lists that were recorded in it; one list at a time is open."""

    def __init__(self, native: NativeDevice) -> None:
        """Raises ComError."""
        self._native = native
        self._allocator = native.device.create(
            "CreateCommandAllocator", ID3D12CommandAllocator, native.list_type
        )
        self._lists: list[ComObject] = []
        self._used = 0
        self.last_use = 0
        """The fence's value after the last submission of one of the lists."""

    def begin(self) -> CommandList:
        """A new open list. Raises ComError."""
        if self._used == len(self._lists):
            made = self._native.device.create(
                "CreateCommandList",
                ID3D12GraphicsCommandList,
                0,
                self._native.list_type,
                self._allocator,
                None,
            )
            self._lists.append(made)
        else:
            self._lists[self._used].Reset(self._allocator, None)
        self._used += 1
        return CommandList(self._lists[self._used - 1])

    def is_free(self) -> bool:
        """Whether the GPU is done with all lists. Raises ComError."""
        return self._native.is_done(self.last_use)

    def reset(self) -> None:
        """Forget what the lists hold. The GPU is done with them, and all are closed."""
        self._allocator.Reset()
        self._used = 0


class CommandPool:
    """Command memory that recordings gave back, to be used again once the GPU is done with it."""

    def __init__(self, native: NativeDevice) -> None:
        self.native = native
        self._lock = threading.Lock()
        self._free: list[CommandMemory] = []

    def take(self) -> CommandMemory:
        """Raises ComError."""
        with self._lock:
            for number, memory in enumerate(self._free):
                if memory.is_free():
                    del self._free[number]
                    break
            else:
                return CommandMemory(self.native)
        try:
            memory.reset()
        except ComError:  # its recording failed halfway
            return CommandMemory(self.native)
        return memory

    def give_back(self, memory: CommandMemory) -> None:
        """Nobody will execute its lists again."""
        self._free.append(memory)  # one step: recordings are forgotten on any thread
