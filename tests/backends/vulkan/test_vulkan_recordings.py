"""What recordings become: barriers, parts, parameters; and what a replay costs."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
from tests.backends.vulkan.vulkan_programs import chain, floats, swiglu, words

from crossinfer.backends.vulkan import VulkanDevice, encode, recorded
from crossinfer.backends.vulkan.commands import CommandBuffer
from crossinfer.core.errors import InvalidUse
from crossinfer.hal.executor import Executor

COMMANDS = {
    "vkCmdDispatch": "dispatch",
    "vkCmdCopyBuffer": "copy",
    "vkCmdPipelineBarrier": "barrier",
    "vkCmdWriteTimestamp": "timestamp",
}


def test_barriers_are_where_the_recorder_put_them(device: VulkanDevice, calls: list[str]) -> None:
    a, b, c, d = (floats(device) for _ in range(4))
    timer = device.timer(1)
    recorder = device.recorder()
    recorder.dispatch(swiglu(device, a, a, b))
    recorder.dispatch(swiglu(device, a, a, c))
    recorder.dispatch(swiglu(device, b, c, d))  # reads what the first two wrote
    recorder.copy_region(a.view(), b.view())  # overwrites what the third read
    recorder.copy_region(d.view(), c.view())
    recorder.timestamp(timer, 0)
    recorder.dispatch(swiglu(device, c, c, d))
    calls.clear()
    recorder.finish()
    found = [COMMANDS[name] for name in calls if name in COMMANDS]
    assert found == [
        *("barrier", "dispatch", "dispatch", "barrier", "dispatch", "barrier", "copy", "copy"),
        *("barrier", "timestamp", "dispatch"),
    ]


def test_a_replayed_step_only_submits(device: VulkanDevice, calls: list[str]) -> None:
    """No recording, no allocation, no descriptor: also not for the download of a few bytes."""
    parameters, result = words(device), words(device, 7)
    recording = chain(device, 70, parameters)
    for _ in range(3):  # the first times make copies of parameters, and find how long it takes
        device.submit(recording, bytes(100)).wait()
        device.download(result.view(0, 4))
    calls.clear()
    for _ in range(5):
        device.submit(recording, bytes(100)).wait()
        assert device.download(result.view(0, 4)) == struct.pack("<i", 7)
    assert set(calls) <= {
        "vkQueueSubmit",
        "vkResetFences",
        "vkGetFenceStatus",
        "vkWaitForFences",
    }
    assert calls.count("vkQueueSubmit") == 5 * 2


def test_long_recordings_are_submitted_in_parts_until_their_time_is_known(
    device: VulkanDevice, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = chain(device, 5 * encode.PART_COMMANDS + 1)
    calls.clear()
    device.submit(recording).wait()
    assert calls.count("vkQueueSubmit") == 6
    monkeypatch.setattr(recorded, "SUBMISSION_S", 1e9)
    device.submit(recording).wait()
    calls.clear()
    device.submit(recording).wait()
    assert calls.count("vkQueueSubmit") <= 6  # a slower run taught nothing new
    recording.handle.ended(recording.handle.started + 1e-6)  # type: ignore[attr-defined]
    calls.clear()
    device.submit(recording).wait()
    assert calls.count("vkQueueSubmit") == 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_parts_compute_the_same_however_they_are_grouped(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(encode, "PART_COMMANDS", 3)
    gate, other, up = floats(device, 1.5), floats(device), floats(device, 1.25)
    recorder = device.recorder()
    expected = np.float64(1.5)
    for number in range(10):
        source, target = (gate, other) if number % 2 == 0 else (other, gate)
        recorder.dispatch(swiglu(device, source, up, target))
        expected = expected / (1 + np.exp(-expected)) * 1.25
    recording = recorder.finish()
    recording.handle._parts_at_once = at_once  # type: ignore[attr-defined]
    device.submit(recording).wait()
    np.testing.assert_allclose(np.frombuffer(device.download(gate), np.float32), expected, 1e-5)


def test_equal_dispatches_share_their_descriptor_set(
    device: VulkanDevice, calls: list[str]
) -> None:
    a, b = floats(device), floats(device)
    recorder = device.recorder()
    for _ in range(20):
        recorder.dispatch(swiglu(device, a, a, b))
    calls.clear()
    recording = recorder.finish()
    assert len(recording.handle._owned.sets.handles) == 1  # type: ignore[attr-defined]
    assert calls.count("vkUpdateDescriptorSets") == 1


def test_a_missing_barrier_is_found_by_the_validation_layers(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if device.messenger is None:
        pytest.skip("The validation layers are not installed.")
    monkeypatch.setattr(CommandBuffer, "barrier", lambda *_: None)
    with pytest.raises(InvalidUse, match="SYNC-HAZARD-READ-AFTER-WRITE"):
        chain(device, 3)
    assert "SYNC-HAZARD" in capsys.readouterr().err


def test_kernels_with_other_bindings_or_constants_are_refused(device: VulkanDevice) -> None:
    a, b = floats(device), floats(device)
    dispatch = swiglu(device, a, a, b)
    for wrong in (
        dataclasses.replace(dispatch, bindings=dispatch.bindings[1:]),
        dataclasses.replace(dispatch, constants=dispatch.constants + bytes(4)),
    ):
        executor = Executor(device)
        executor.dispatch(wrong)
        with pytest.raises(InvalidUse, match="views to read"):
            executor.submit_and_wait()
