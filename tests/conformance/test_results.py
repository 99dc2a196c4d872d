"""Results: a few bytes that a recording brings to the host itself."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse
from crossinfer.hal.buffer import Buffer, View
from crossinfer.hal.device import Device
from crossinfer.hal.recording import Recording


def words(device: Device, values: range) -> Buffer:
    return device.upload(np.array(values, np.int32), (len(values),), DType.I32)


def copying(device: Device, parameters: Buffer, target: Buffer) -> Recording:
    """Copies the parameters to the target, whose start and middle are its results."""
    recorder = device.recorder(parameters)
    recorder.copy_region(parameters.view(), target.view())
    assert recorder.result(target.view(0, 4)) == 0
    assert recorder.result(target.view(256, 8)) == 1
    return recorder.finish()


def test_results_are_those_of_the_last_run(device: Device) -> None:
    parameters, target = words(device, range(128)), words(device, range(128))
    recording = copying(device, parameters, target)
    for first in (0, 1000, 7):
        params = np.arange(first, first + 128, dtype=np.int32).tobytes()
        device.submit(recording, params).wait()
        found = [np.frombuffer(recording.read_result(n), np.int32).tolist() for n in (1, 0)]
        assert found == [[first + 64, first + 65], [first]]


def test_two_recordings_keep_their_own_results(device: Device) -> None:
    parameters, target = words(device, range(128)), words(device, range(128))
    recordings = [copying(device, parameters, target) for _ in range(2)]
    for number, recording in enumerate(recordings):
        params = np.full(128, number, np.int32).tobytes()
        device.submit(recording, params).wait()
        assert np.frombuffer(recording.read_result(0), np.int32)[0] == number


def test_misuse(device: Device) -> None:
    parameters, target = words(device, range(128)), words(device, range(128))
    recording = copying(device, parameters, target)
    with pytest.raises(InvalidUse, match="has not run yet"):
        recording.read_result(0)
    device.submit(recording).wait()
    with pytest.raises(InvalidUse, match="2 results, none of number 2"):
        recording.read_result(2)
    recorder = device.recorder()
    with pytest.raises(InvalidUse, match="A result starts at byte 4"):
        recorder.result(View(target, 4, 4))
    recorder.result(target.view())
    target.free()
    with pytest.raises(InvalidUse, match="was freed"):
        recorder.finish()
    with pytest.raises(InvalidUse, match="was freed"):
        device.submit(recording)
