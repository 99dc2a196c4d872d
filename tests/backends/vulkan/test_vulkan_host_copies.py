"""The queue for copies beside the work: which family it is from, and what buffers must allow."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tests.backends.vulkan.test_vulkan_identity import FakePhysical
from tests.backends.vulkan.vulkan_programs import words

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.backends.vulkan.constants import SHARING_CONCURRENT, QueueFlag
from crossinfer.backends.vulkan.logical import Queue
from crossinfer.backends.vulkan.memory import DEVICE_MEMORY, buffer_info
from crossinfer.backends.vulkan.physical import QueueFamily
from crossinfer.core.dtypes import DType

SIZE = 1 << 20
G, C, T = QueueFlag.GRAPHICS, QueueFlag.COMPUTE, QueueFlag.TRANSFER


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ([G | C | T], None),
        ([G | C | T, C | T], None),
        ([G | C | T, T, C | T], 1),
        ([C, 1 << 4, T], 2),  # video only is no place to copy
    ],
)
def test_the_family_that_only_copies(families: list[int], expected: int | None) -> None:
    made = [QueueFamily(index, int(flags), 64) for index, flags in enumerate(families)]
    found = FakePhysical("card", families=made).copy_family()
    assert (None if found is None else found.index) == expected


def test_buffers_are_shared_between_the_families(device: VulkanDevice) -> None:
    native = device.native
    alone = buffer_info(native, 512)
    assert (alone.sharingMode, alone.queueFamilyIndexCount) == (0, 0)
    native.copy_queue = Queue(native.queue, native.queue_family + 1, native.queue_lock)
    shared = buffer_info(native, 512)
    assert shared.sharingMode == SHARING_CONCURRENT
    assert shared.queueFamilyIndexCount == 2
    indices = ctypes.cast(shared.pQueueFamilyIndices, ctypes.POINTER(ctypes.c_uint32))
    assert sorted(indices[:2]) == [native.queue_family, native.queue_family + 1]


def test_the_same_copy_is_recorded_once(device: VulkanDevice, calls: list[str]) -> None:
    targets = [words(device, count=SIZE // 4) for _ in range(2)]
    sources = [device.host_memory(SIZE) for _ in range(3)]

    def copies() -> None:
        for number, source in enumerate(sources):
            source.data[:] = number
            device.copy_in(source, targets[number % 2].view()).wait()

    copies()
    calls.clear()
    for _ in range(3):
        copies()
    assert set(calls) <= {"vkQueueSubmit", "vkWaitForFences", "vkResetFences", "vkGetFenceStatus"}
    assert (np.frombuffer(device.download(targets[0]), np.uint8) == 2).all()
    objects = device.native.objects
    for source in sources:
        source.free()
    assert device.native.objects < objects


def test_a_recorded_copy_goes_with_its_target(device: VulkanDevice) -> None:
    """A driver may give another buffer the handle of one that is gone."""
    size = DEVICE_MEMORY.block_bytes  # a block of its own
    source = device.host_memory(1024)
    for fill in (1, 2):
        source.data[:] = fill
        target = device.alloc((size // 4,), DType.F32)
        device.copy_in(source, target.view(0, 1024)).wait()
        assert len(device._host_copies._recorded) == 1
        assert set(device.download(target.view(0, 1024))) == {fill}
        target.free()
        assert device._host_copies._recorded == {}
    source.free()


def test_copies_go_to_their_queue(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    native = device.native
    other = Queue(native.queue, native.queue_family, native.queue_lock)
    native.copy_queue = other
    used: list[Queue] = []
    submit_to = native.submit_to

    def recorded(queue: Queue, info: Any, fence: int | None, count: int = 1) -> None:
        used.append(queue)
        submit_to(queue, info, fence, count)

    monkeypatch.setattr(native, "submit_to", recorded)
    device.copy_in(device.host_memory(256), words(device).view()).wait()
    assert [queue is other for queue in used] == [True]
