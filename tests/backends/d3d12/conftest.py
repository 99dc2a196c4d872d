"""Devices for the Direct3D 12 backend's tests, and a witness of what they record."""

from __future__ import annotations

import os
import sys
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


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave without the drivers' exit handlers.

    Tests lose devices on purpose and leave what belongs to them alone, as a process must that goes
    on. Once, after all tests had passed, the process waited for ever with the software driver's
    threads for company; what it waited for is not known.
    """
    session = config.pluginmanager.get_plugin("session")
    if session is not None and "d3d12" in os.environ.get("TEST_DEVICES", ""):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))
