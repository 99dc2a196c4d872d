"""The one-shot executor, and fences."""

from __future__ import annotations

import threading

import pytest

from crossinfer.backends.null import NullDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InvalidUse, OutOfDeviceMemory
from crossinfer.hal.executor import Executor
from crossinfer.hal.fence import Fence


def test_runs_what_was_recorded_once() -> None:
    with ReferenceDevice() as device:
        source = device.upload(b"a" * 256, (64,), DType.I32)
        target = device.alloc((64,), DType.I32)
        executor = Executor(device)
        executor.copy_region(source.view(), target.view())
        executor.submit_and_wait()
        assert device.download(target) == b"a" * 256
        device.write(target.view(), b"b" * 256)
        executor.submit_and_wait()
        assert device.download(target) == b"b" * 256


def test_reset_forgets() -> None:
    with ReferenceDevice() as device:
        source = device.upload(b"a" * 256, (64,), DType.I32)
        target = device.upload(b"b" * 256, (64,), DType.I32)
        executor = Executor(device)
        executor.copy_region(source.view(), target.view())
        executor.reset()
        executor.submit_and_wait()
        assert device.download(target) == b"b" * 256


def test_times() -> None:
    with ReferenceDevice() as device:
        timer, executor = device.timer(2), Executor(device)
        executor.timestamp(timer, 0)
        executor.timestamp(timer, 1)
        executor.submit_and_wait()
        assert timer.elapsed(0, 1) >= 0


def test_a_timeout_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    device = NullDevice()
    monkeypatch.setattr(device, "_submit", lambda *_: None)
    with pytest.raises(DeviceLost, match=r"within 0\.01 seconds"):
        Executor(device).submit_and_wait(0.01)


def test_a_closed_device_gives_no_executor() -> None:
    device = NullDevice()
    device.close()
    with pytest.raises(InvalidUse, match="closed"):
        Executor(device)


def test_a_fence_keeps_its_first_signal() -> None:
    fence = Fence(NullDevice())
    fence.signal()
    fence.signal(OutOfDeviceMemory("too late"))
    fence.wait()
    failed = Fence(NullDevice())
    failed.signal(OutOfDeviceMemory("no memory"))
    failed.signal()
    with pytest.raises(OutOfDeviceMemory, match="no memory"):
        failed.wait()


def test_a_fence_wakes_every_waiter() -> None:
    fence = Fence(NullDevice())
    threads = [threading.Thread(target=fence.wait, args=(10,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    fence.signal()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_errors_of_a_submission_reach_its_fence_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with NullDevice() as device:
        monkeypatch.setattr(device, "_submit", lambda *_: None)
        fence = device.submit(device.recorder().finish())
        fence_behind = device.submit(device.recorder().finish())
        threading.Timer(0.02, fence.signal, [OutOfDeviceMemory("no memory")]).start()
        threading.Timer(0.04, fence_behind.signal).start()
        device.wait_idle()
        assert fence_behind.done
        with pytest.raises(OutOfDeviceMemory):
            fence.wait()
