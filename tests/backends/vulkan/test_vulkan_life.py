"""Opening, closing, forgetting, forking, and devices of a host: nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import sys
import weakref

import numpy as np
import pytest
from tests.backends.vulkan.vulkan_programs import chain, wait_idle, words
from tests.forked import check_fork
from tests.vulkan_driver import NO_DRIVER, has_driver, has_validation, open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice, from_vulkan, open_vulkan
from crossinfer.backends.vulkan.identity import usable_devices
from crossinfer.backends.vulkan.instance import Instance, create_instance, find_loader
from crossinfer.backends.vulkan.logical import LogicalDevice, create_logical_device
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse


def test_a_closed_device_has_destroyed_everything(device: VulkanDevice) -> None:
    chain(device, 3)
    device.timer(4)
    device.submit(chain(device, 2, words(device)), b"1234").wait()
    device.download(words(device))
    assert device.native.objects > 10
    device.close()
    assert device.native.objects == 0


def test_a_hundred_devices_leave_no_memory() -> None:
    if not has_driver():
        pytest.skip(NO_DRIVER)

    def cycle() -> None:
        # The validation layers themselves leak with each submission.
        with open_vulkan(validation=False) as device:
            recording = chain(device, 4, words(device))
            device.submit(recording, bytes(64)).wait()
            device.download(words(device, count=1 << 18))

    for _ in range(20):
        cycle()
    gc.collect()
    before = _resident_bytes()
    for _ in range(100):
        cycle()
    gc.collect()
    assert _resident_bytes() - before < 4 << 20


def _resident_bytes() -> int:
    if not sys.platform.startswith("linux"):
        pytest.skip("Resident memory is read from /proc.")
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_forgotten_recordings_and_timers_go(device: VulkanDevice) -> None:
    parameters = words(device)

    def use() -> None:
        timer, recorder = device.timer(2), device.recorder(parameters)
        recorder.timestamp(timer, 0)
        device.submit(recorder.finish(), bytes(16)).wait()
        device.submit(chain(device, 40)).wait()

    use()
    counts = []
    for _ in range(5):
        use()
        gc.collect()
        device.native.destroy_unused()
        counts.append(device.native.objects)
    assert len(set(counts)) == 1


def test_freed_blocks_go_back_to_the_driver(device: VulkanDevice) -> None:
    words(device).free()
    before = device.native.objects
    for _ in range(3):
        large = [device.alloc((8 << 20,), DType.F32) for _ in range(3)]
        small = [device.alloc((1 << 20,), DType.F32) for _ in range(40)]
        assert device.native.objects >= before + 10  # a buffer and its memory, each
        for buffer in [*large, *small]:
            buffer.free()
        assert device.native.objects <= before + 2
    assert device.memory_in_use == 0


def test_a_download_that_was_kept_goes_with_its_memory(device: VulkanDevice) -> None:
    for fill in (1, 2):
        buffer = words(device, fill, count=8 << 20)
        assert np.frombuffer(device.download(buffer.view(0, 4)), np.int32)[0] == fill
        buffer.free()


@pytest.mark.parametrize("closed", [False, True])
def test_a_forgotten_device_is_collected(closed: bool) -> None:
    device = open_vulkan_or_skip()
    device.submit(chain(device, 1))
    if closed:
        device.close()
    dead, native = weakref.ref(device), device.native
    del device
    gc.collect()
    assert dead() is None
    assert native.objects == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork here.")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_has_no_device(device: VulkanDevice) -> None:
    buffer, recording = words(device, 5), chain(device, 2)
    check_fork(device, buffer, 5, recording)


class CountingLock(contextlib.AbstractContextManager[None]):
    """A host's lock, which tells whether it is held."""

    def __init__(self) -> None:
        self.times = 0
        self.is_held = False

    def __enter__(self) -> None:
        assert not self.is_held
        self.is_held = True
        self.times += 1

    def __exit__(self, *error: object) -> None:
        self.is_held = False


def host_device() -> tuple[Instance, LogicalDevice]:
    """An instance and a device as a host would make them, with the validation layers on."""
    loader = find_loader()
    if loader is None or not has_driver():
        open_vulkan_or_skip()  # says why
    assert loader is not None
    instance = create_instance(loader, with_validation=has_validation())
    return instance, create_logical_device(usable_devices(instance)[0])


def test_a_device_of_a_host_is_used_and_left_alone() -> None:
    instance, native = host_device()
    handles = (instance.handle, native.physical.handle, native.handle)
    before = native.objects
    for _ in range(2):
        with from_vulkan(*handles, native.queue_family, native.queue) as device:
            assert device.info.name == "vulkan"
            assert not device.native.has_integer_dots  # which features it has cannot be asked
            device.submit(chain(device, 3)).wait()
            assert np.frombuffer(device.download(words(device, 9)), np.int32)[0] == 9
        assert device.native.objects == 0
    assert native.objects == before
    wait_idle(native)  # the host goes on with it
    native.close()
    if instance.messenger is not None:
        assert instance.messenger.take() == []
    instance.close()


def test_submissions_to_the_queue_of_a_host_hold_its_lock() -> None:
    instance, native = host_device()
    handles = (instance.handle, native.physical.handle, native.handle)
    held = CountingLock()
    with from_vulkan(*handles, native.queue_family, native.queue, queue_lock=held) as device:
        submit = device.native.functions.vkQueueSubmit
        states: list[bool] = []

        def watched(*arguments: object) -> object:
            states.append(held.is_held)
            return submit(*arguments)

        device.native.functions.vkQueueSubmit = watched  # type: ignore[attr-defined]
        device.submit(chain(device, 3)).wait()
        device.download(words(device, 9))
    assert states
    assert all(states)
    assert held.times >= len(states)
    native.close()
    instance.close()


def test_injection_refuses_what_cannot_be_meant() -> None:
    instance, native = host_device()
    handles = (instance.handle, native.physical.handle, native.handle)
    with pytest.raises(InvalidUse, match=r"queue family 77 .* cannot compute"):
        from_vulkan(*handles, 77, native.queue)
    with pytest.raises(InvalidUse, match="is null"):
        from_vulkan(*handles, native.queue_family, 0)
    native.close()
    instance.close()
