"""Devices for the Direct3D 12 backend's tests, and a witness of what they record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.backends.d3d12.strict_recorder import StrictRecorder
from tests.d3d12_driver import open_d3d12_or_skip

from crossinfer.backends.d3d12 import D3D12Device


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> StrictRecorder:
    """Watches the devices that are opened after it."""
    recorder = StrictRecorder()
    recorder.watch(monkeypatch)
    return recorder


@pytest.fixture
def device() -> Iterator[D3D12Device]:
    with open_d3d12_or_skip() as opened:
        yield opened


@pytest.fixture
def strict_device(strict: StrictRecorder) -> Iterator[D3D12Device]:
    """A device whose every call is checked in the end."""
    with open_d3d12_or_skip() as opened:
        yield opened
    assert strict.complaints == []
