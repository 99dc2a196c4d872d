"""Waiting for what has run before: the fence is asked around the time when it should be done."""

from __future__ import annotations

import dataclasses
import time
import types

import numpy as np
import pytest
from tests.backends.vulkan.vulkan_programs import SIZE, chain, words

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.backends.vulkan import fence as vulkan_fence
from crossinfer.backends.vulkan.fence import VulkanFence
from crossinfer.core.errors import DeviceLost
from crossinfer.hal.info import DeviceKind


def on_a_gpu(device: VulkanDevice) -> None:
    """The device of the test machine computes on the processor that would ask."""
    device.info = dataclasses.replace(device.info, kind=DeviceKind.DISCRETE_GPU)


def test_only_what_has_run_on_another_processor_is_expected(device: VulkanDevice) -> None:
    recording = chain(device, 3)
    expected = []
    for number in range(4):
        if number == 2:
            on_a_gpu(device)
        fence = device.submit(recording)
        assert isinstance(fence, VulkanFence)
        expected.append(fence.expected is not None)
        fence.wait()
        assert fence.done
    assert expected == [False, False, True, True]


def test_the_first_run_is_not_expected(device: VulkanDevice) -> None:
    on_a_gpu(device)
    fence = device.submit(chain(device, 3))
    assert isinstance(fence, VulkanFence)
    assert fence.expected is None
    fence.wait()


@pytest.mark.parametrize("error_s", [-10.0, 0.0, 0.05, 10.0])
def test_an_expectation_may_be_wrong(
    device: VulkanDevice, calls: list[str], error_s: float
) -> None:
    """Far too early or too late: then it is waited for as if nothing had been expected."""
    on_a_gpu(device)
    target = words(device)
    recorder = device.recorder(words(device))
    assert recorder.result(target.view(0, 4)) == 0
    recorder.copy_region(words(device, 7).view(), target.view())
    recording = recorder.finish()
    device.submit(recording).wait()
    calls.clear()
    for number in range(5):
        fence = device.submit(recording, np.full(SIZE, number, np.int32).tobytes())
        assert isinstance(fence, VulkanFence)
        assert fence.expected is not None
        fence.expected += error_s
        fence.wait(20)
        assert np.frombuffer(recording.read_result(0), np.int32)[0] == 7
    if error_s:
        assert "vkWaitForFences" in calls


@pytest.mark.parametrize(
    ("kind", "late_s"), [("discrete", 0.0), ("discrete", 1.0), ("integrated", 0.0)]
)
def test_short_waits_for_a_discrete_gpu_do_not_sleep(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, kind: str, late_s: float
) -> None:
    on_a_gpu(device)
    if kind == "integrated":
        device.info = dataclasses.replace(device.info, kind=DeviceKind.INTEGRATED_GPU)
    recording = chain(device, 3)
    device.submit(recording).wait()
    fence = device.submit(recording)
    assert isinstance(fence, VulkanFence)
    slept: list[float] = []

    def wait(_: object, timeout_s: float) -> bool:
        slept.append(timeout_s)
        return True

    device.native.wait(fence.handle, 10)
    now = time.perf_counter()
    fence.expected = now + 5e-3 + late_s
    monkeypatch.setattr(vulkan_fence, "time", types.SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(device.native, "wait", wait)
    fence.wait()
    monkeypatch.undo()
    assert fence.done
    # A second is too long to stay awake, and an integrated GPU shares the processor's power.
    assert len(slept) == (late_s > 0 or kind == "integrated")


def test_an_expected_end_that_does_not_come_is_a_loss(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(device)
    recording = chain(device, 2)
    device.submit(recording).wait()
    fence = device.submit(recording)
    monkeypatch.setattr(device.native, "is_signaled", lambda *_: False)
    monkeypatch.setattr(device.native, "wait", lambda *_: False)
    with pytest.raises(DeviceLost, match=r"no answer within 0\.01 seconds"):
        fence.wait(0.01)
    monkeypatch.undo()
