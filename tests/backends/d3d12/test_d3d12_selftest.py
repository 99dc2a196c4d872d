"""The command that tests a machine's devices as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from tests.d3d12_driver import NO_DIRECT3D, has_direct3d

from crossinfer.backends.d3d12 import opening, selftest
from crossinfer.backends.d3d12.selftest import ExitCode
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice


def test_a_machine_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    if not has_direct3d():
        pytest.skip(NO_DIRECT3D)
    assert selftest.main(["--op", "swiglu"]) == ExitCode.PASSED
    printed = capsys.readouterr().out
    assert "device 0: " in printed
    assert "runs passed" in printed
    assert "DirectML" in printed


def test_a_wrong_kernel_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_direct3d():
        pytest.skip(NO_DIRECT3D)
    open_right = opening.open_adapter

    def open_wrong(*arguments: Any) -> FaultyDevice:
        return FaultyDevice(open_right(*arguments), [Fault(FaultKind.WRONG_RESULT, "swiglu")])

    monkeypatch.setattr(selftest, "open_adapter", open_wrong)
    assert selftest.main(["--op", "swiglu"]) == ExitCode.FAILED
    assert "FAILED swiglu: swiglu" in capsys.readouterr().out


def test_a_machine_without_devices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSINFER_D3D12_LIBRARY", "libthere-is-none.so")
    assert selftest.main([]) == ExitCode.NO_DEVICE
    assert "There is no Direct3D 12 here" in capsys.readouterr().out


def test_bad_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        selftest.main(["--op", "cooking"])
    assert "no op cooking" in capsys.readouterr().err
