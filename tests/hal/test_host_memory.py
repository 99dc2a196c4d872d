"""Copies out of host memory: what the HAL checks and keeps, whatever the backend."""

from __future__ import annotations

import pytest

from crossinfer.backends.null import NullDevice
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InvalidUse, OutOfDeviceMemory
from crossinfer.hal.buffer import View
from crossinfer.hal.fence import Fence
from crossinfer.hal.host_memory import HostMemory
from crossinfer.hal.recording import Recording


class SlowDevice(NullDevice):
    """Copies and recordings end when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Fence] = []

    def _copy_in(self, source: HostMemory, target: View) -> Fence:
        del source, target
        self.open.append(Fence(self))
        return self.open[-1]

    def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
        del recording, params
        self.open.append(fence)

    def finish(self) -> None:
        for fence in self.open:
            fence.signal()


@pytest.fixture
def device() -> SlowDevice:
    return SlowDevice()


def test_what_a_copy_uses_is_not_freed(device: SlowDevice) -> None:
    memory, target = device.host_memory(256), device.alloc((64,), DType.I32)
    device.copy_in(memory, target.view())
    with pytest.raises(InvalidUse, match="in flight"):
        target.free()
    with pytest.raises(InvalidUse, match="A copy out of HostMemory"):
        memory.free()
    device.finish()
    target.free()
    memory.free()
    memory.free()


def test_nothing_waits_for_copies_but_closing(device: SlowDevice) -> None:
    memory, target = device.host_memory(256), device.alloc((64,), DType.I32)
    fence = device.copy_in(memory, target.view())
    device.wait_idle()
    device.download(device.alloc((64,), DType.I32))
    assert not fence.done
    device.finish()
    device.close()


def test_a_target_that_a_recording_uses_is_refused(device: SlowDevice) -> None:
    memory, target = device.host_memory(256), device.alloc((128,), DType.I32)
    recorder = device.recorder()
    recorder.copy_region(target.view(0, 256), target.view(256, 256))
    device.submit(recorder.finish())
    with pytest.raises(InvalidUse, match="used by a recording in flight"):
        device.copy_in(memory, target.view(0, 256))
    device.finish()
    device.copy_in(memory, target.view(0, 256))


def test_a_loss_ends_copies(device: SlowDevice) -> None:
    memory, target = device.host_memory(256), device.alloc((64,), DType.I32)
    fence = device.copy_in(memory, target.view())
    device.lose("a test")
    with pytest.raises(DeviceLost):
        fence.wait()
    with pytest.raises(DeviceLost):
        device.copy_in(memory, target.view())
    memory.free()
    target.free()


def test_a_copy_that_failed_does_not_keep_a_device_open(device: SlowDevice) -> None:
    memory, target = device.host_memory(256), device.alloc((64,), DType.I32)
    fence = device.copy_in(memory, target.view())
    fence.signal(OutOfDeviceMemory("no memory for the copy"))
    device.close()
    assert device.closed
    assert target.freed
    with pytest.raises(OutOfDeviceMemory):
        fence.wait()


def test_copies_that_ended_leave_nothing_behind() -> None:
    with NullDevice() as device:
        memory, target = device.host_memory(256), device.alloc((64,), DType.I32)
        for _ in range(100):
            device.copy_in(memory, target.view()).wait()
        assert len(device._in_flight._copies) == 1
