"""What all devices do by themselves, whatever their backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossinfer.backends.null import NullDevice
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost
from crossinfer.formats.tensors import map_file
from crossinfer.hal import device as device_module


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_submission_that_is_cut_short_loses_the_device(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its fence would stay open, and whoever closes the device would wait for it."""
    device = NullDevice()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(device, "_submit", fail)
    recording = device.recorder().finish()
    with pytest.raises(error):
        device.submit(recording)
    assert not recording.in_flight
    with pytest.raises(DeviceLost, match=f"cut short \\({error.__name__}\\)"):
        device.submit(recording)
    device.close()


def test_an_upload_lets_go_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[object] = []
    monkeypatch.setattr(device_module, "release_pages", released.append)
    (tmp_path / "file").write_bytes(bytes(4096))
    part = map_file(tmp_path / "file")[1024:2048]
    NullDevice().upload(part, (256,), DType.F32)
    assert released == [part]


def test_replays_leave_nothing_behind() -> None:
    """What is kept of submissions must not grow with every token."""
    with NullDevice() as device:
        recording = device.recorder().finish()
        for _ in range(100):
            device.submit(recording).wait()
        assert len(device._in_flight._recordings) == 1
