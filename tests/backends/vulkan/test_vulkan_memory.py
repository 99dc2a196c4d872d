"""Blocks, allocations, and copies between host and device."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.backends.vulkan.vulkan_programs import words

from crossinfer.backends.vulkan import VulkanDevice, transfers
from crossinfer.backends.vulkan.memory import DEVICE_MEMORY, allocation_of
from crossinfer.core.dtypes import DType

KB = 1 << 10


def test_small_tensors_share_blocks_and_large_ones_do_not(
    device: VulkanDevice, calls: list[str]
) -> None:
    small = [device.alloc((64,), DType.F32) for _ in range(100)]
    assert calls.count("vkAllocateMemory") == 1
    places = [(allocation_of(b).buffer, allocation_of(b).offset) for b in small]
    assert len(set(places)) == 100
    large = [device.alloc((DEVICE_MEMORY.block_bytes // 4,), DType.F32) for _ in range(2)]
    assert calls.count("vkAllocateMemory") == 3
    assert len({allocation_of(b).buffer for b in [*small, *large]}) == 3
    assert allocation_of(large[0]).offset == 0


def test_neighbours_in_a_block_are_left_alone(device: VulkanDevice) -> None:
    buffers = [words(device, fill, count=65) for fill in range(10)]
    device.write(buffers[4].view(), b"\xff" * buffers[4].size_in_bytes)
    for fill, buffer in enumerate(buffers):
        found = np.frombuffer(device.download(buffer), np.int32)[:65]
        assert (found == (-1 if fill == 4 else fill)).all()


@pytest.mark.parametrize(
    "size",
    [
        1,
        transfers.SMALL_BYTES,
        transfers.SMALL_BYTES + 1,
        transfers.CHUNK_BYTES,
        2 * transfers.CHUNK_BYTES + 3,
        5 * transfers.CHUNK_BYTES,
    ],
)
def test_copies_of_any_size_and_place(device: VulkanDevice, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    buffer = device.alloc((-(-(size + 1024) // 4),), DType.I32)
    device.write(buffer.view(256), data)
    assert device.download(buffer.view(256, size)) == data
    assert device.download(buffer.view(256, 1)) == data[:1]


def test_a_write_returns_before_its_copy_and_may_change_what_it_was_given(
    device: VulkanDevice,
) -> None:
    target, data = words(device, count=1 << 20), bytearray(4 << 20)
    for fill in range(10):
        data[:] = bytes([fill]) * len(data)
        device.write(target.view(), memoryview(data))
        data[:] = b"\xee" * len(data)
        assert device.download(target.view(0, 100 * KB)) == bytes([fill]) * 100 * KB


def test_many_different_small_downloads(device: VulkanDevice) -> None:
    """More than are kept, twice over, so that kept ones are given up and made again."""
    table = np.arange(128 * 64, dtype=np.int32)
    buffer = device.upload(table, table.shape, DType.I32)
    for _ in range(2):
        for row in range(128):
            found = np.frombuffer(device.download(buffer.view(256 * row, 256)), np.int32)
            np.testing.assert_array_equal(found, table[64 * row : 64 * row + 64])


def test_threads_upload_and_download_at_once(device: VulkanDevice) -> None:
    failures: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            fill = 100 * number + turn
            buffer = words(device, fill, count=50_000 if turn % 2 else 100)
            if not (np.frombuffer(device.download(buffer), np.int32)[:100] == fill).all():
                failures.append(fill)
            buffer.free()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert device.memory_in_use == 0
