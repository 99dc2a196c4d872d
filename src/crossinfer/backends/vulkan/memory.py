"""Device memory in blocks: one VkBuffer over each, and allocations that are parts of it.

An allocation from the driver takes long, and their number is limited (4096 on many devices). Large
tensors have a block each; small ones share blocks.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections.abc import Callable

from crossinfer.backends.vulkan import structures as vk
from crossinfer.backends.vulkan.constants import (
    SHARING_CONCURRENT,
    BufferUsage,
    MemoryFlag,
    Result,
)
from crossinfer.backends.vulkan.errors import VulkanError, check
from crossinfer.backends.vulkan.logical import LogicalDevice
from crossinfer.backends.vulkan.ranges import FreeRanges
from crossinfer.core.errors import KernelUnsupported
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import Buffer, View

ALIGNMENT = 256
"""No device asks for more, for storage buffers or for memory that the host maps."""
_USAGE = BufferUsage.TRANSFER_SRC | BufferUsage.TRANSFER_DST | BufferUsage.STORAGE_BUFFER


@dataclasses.dataclass(frozen=True)
class MemoryKind:
    """What memory must be and should be."""

    required: MemoryFlag
    preferred: MemoryFlag
    block_bytes: int = 64 << 20

    @property
    def is_mapped(self) -> bool:
        return MemoryFlag.HOST_VISIBLE in self.required


_ANY = MemoryFlag(0)
DEVICE_MEMORY = MemoryKind(_ANY, MemoryFlag.DEVICE_LOCAL)
_MAPPED = MemoryFlag.HOST_VISIBLE | MemoryFlag.HOST_COHERENT
UPLOAD_MEMORY = MemoryKind(_MAPPED, _ANY, block_bytes=1 << 20)
DOWNLOAD_MEMORY = MemoryKind(_MAPPED, MemoryFlag.HOST_CACHED, block_bytes=1 << 20)


class Block:
    """Memory with a VkBuffer over all of it."""

    def __init__(self, device: LogicalDevice, kind: MemoryKind, size: int) -> None:
        """Raises VulkanError."""
        self.ranges = FreeRanges(size)
        self.address = 0
        self._size = size
        self._device = device
        physical, functions = device.physical, device.functions
        self.buffer = device.create("Buffer", buffer_info(device, size))
        try:
            needs = vk.VkMemoryRequirements()
            functions.vkGetBufferMemoryRequirements(device.handle, self.buffer, ctypes.byref(needs))
            heap = None if kind.is_mapped else physical.device_heap()
            found = physical.memory_type(needs.memoryTypeBits, kind.required, kind.preferred, heap)
            if found is None or needs.size > physical.max_allocation:
                raise VulkanError("vkAllocateMemory", Result.VK_ERROR_OUT_OF_DEVICE_MEMORY)
            info = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=found)
            self._memory = device.allocate_memory(info)
        except VulkanError:
            device.destroy("Buffer", self.buffer)
            raise
        try:
            bind = functions.vkBindBufferMemory
            check("vkBindBufferMemory", bind(device.handle, self.buffer, self._memory, 0))
            if kind.is_mapped:
                self.address = self._map()
        except VulkanError:
            self.release()
            raise

    def release(self) -> None:
        self._device.destroy("Buffer", self.buffer)
        self._device.free_memory(self._memory)

    def _map(self) -> int:
        address = ctypes.c_void_p()
        map_memory = self._device.functions.vkMapMemory
        check(
            "vkMapMemory",
            map_memory(self._device.handle, self._memory, 0, self._size, 0, ctypes.byref(address)),
        )
        assert address.value is not None
        return address.value


def buffer_info(device: LogicalDevice, size: int) -> vk.Record:
    """Any queue of the device may use the buffer at any time."""
    families = {device.queue_family, device.copy_queue.family}
    if len(families) == 1:
        return vk.VkBufferCreateInfo(size=size, usage=_USAGE)
    return vk.VkBufferCreateInfo(
        size=size,
        usage=_USAGE,
        sharingMode=SHARING_CONCURRENT,
        queueFamilyIndexCount=len(families),
        pQueueFamilyIndices=(ctypes.c_uint32 * len(families))(*families),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Allocation:
    """A part of a block."""

    block: Block
    offset: int
    size: int

    @property
    def buffer(self) -> int:
        return self.block.buffer

    @property
    def address(self) -> int:
        """Where the host sees it, if the memory is mapped."""
        return self.block.address + self.offset


class Allocator:
    """Memory of one kind. Thread-safe. `before_release` is called before a block goes away."""

    def __init__(
        self,
        device: LogicalDevice,
        kind: MemoryKind,
        before_release: Callable[[Block], None] = lambda _: None,
    ) -> None:
        self._device = device
        self._kind = kind
        self._before_release = before_release
        self._lock = threading.Lock()
        self._shared: list[Block] = []

    def alloc(self, size: int) -> Allocation:
        """Raises VulkanError."""
        size = align_up(size, ALIGNMENT)
        if size > self._kind.block_bytes // 4:
            return self._whole(size)
        with self._lock:
            for block in self._shared:
                if (offset := block.ranges.take(size)) is not None:
                    return Allocation(block, offset, size)
            try:
                block = Block(self._device, self._kind, self._kind.block_bytes)
            except VulkanError as error:
                if not error.is_out_of_memory:
                    raise
                return self._whole(size)  # the last bit of memory, without room for others
            self._shared.append(block)
            offset = block.ranges.take(size)
            assert offset is not None
            return Allocation(block, offset, size)

    def free(self, allocation: Allocation) -> None:
        block = allocation.block
        with self._lock:
            block.ranges.give_back(allocation.offset, allocation.size)
            if not block.ranges.all_free:
                return
            if block in self._shared:
                if sum(other.ranges.all_free for other in self._shared) == 1:
                    return  # the next small tensor will want it
                self._shared.remove(block)
        self._before_release(block)
        block.release()

    def _whole(self, size: int) -> Allocation:
        block = Block(self._device, self._kind, size)
        block.ranges.take(size)
        return Allocation(block, 0, size)


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """A tensor that is larger than the driver's largest allocation.

    All pieces but the last have `piece_bytes`; a view of one dispatch or copy lies within a piece.
    """

    parts: tuple[Allocation, ...]
    piece_bytes: int


def parts_of(buffer: Buffer) -> tuple[Allocation, ...]:
    """The memory behind a buffer of this backend, piece by piece."""
    if isinstance(buffer.handle, Pieces):
        return buffer.handle.parts
    return (allocation_of(buffer),)


def allocation_of(buffer: Buffer) -> Allocation:
    """The memory behind a buffer that is in one piece."""
    assert isinstance(buffer.handle, Allocation)
    return buffer.handle


def spans_of(view: View) -> list[tuple[Allocation, int, int]]:
    """(memory, offset in it, size) of each piece that a view touches."""
    if not isinstance(view.buffer.handle, Pieces):
        return [(allocation_of(view.buffer), view.offset, view.size)]
    size = view.buffer.handle.piece_bytes
    spans = []
    for number, part in enumerate(view.buffer.handle.parts):
        start, end = max(view.offset, size * number), min(view.end, size * (number + 1))
        if start < end:
            spans.append((part, start - size * number, end - start))
    return spans


def place_of(view: View) -> tuple[int, int]:
    """VkBuffer and offset of a view's first byte. Raises KernelUnsupported if it has pieces."""
    spans = spans_of(view)
    if len(spans) > 1:
        raise KernelUnsupported(
            f"{view.buffer} is larger than an allocation of this device, and {view.size} bytes "
            "across its pieces cannot be used at once."
        )
    allocation, offset, _ = spans[0]
    return allocation.buffer, allocation.offset + offset
