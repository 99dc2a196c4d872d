"""`crossinfer verify`, and what `devices` says of drivers that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.invoke import invoke
from tests.faulty_backend import GPU, FaultyBackend

from crossinfer.hal import registry
from crossinfer.hal.faults import Fault, FaultKind
from crossinfer.hal.info import DeviceInfo
from crossinfer.hal.verdicts import VerdictStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerdictStore:
    made = VerdictStore(tmp_path / "verdicts.json")
    monkeypatch.setattr(VerdictStore, "default", lambda: made)
    return made


def test_a_device_that_passes(store: VerdictStore) -> None:
    arguments = ["verify", "--device", "cpu", "--op", "swiglu", "--op", "rms_norm", "--json"]
    result = invoke(arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["device"], found["failed"], found["known_failures"]) == ("cpu", 0, [])
    assert [row["kernel"] for row in found["kernels"]][-1] == "swiglu"
    assert sum(row["cases"] for row in found["kernels"]) == found["cases"] > 8
    assert all(0 < row["error"] < 1e-5 and row["reason"] == "" for row in found["kernels"])
    assert all(verdict.passed for verdict in store.all())
    assert {verdict.kernel for verdict in store.all()} >= {"swiglu"}


def test_a_device_that_fails(store: VerdictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [Fault(FaultKind.WRONG_RESULT, "swiglu", 2), Fault(FaultKind.LOST, "argmax", 3)]
    FaultyBackend(faults, info=GPU).install(monkeypatch, "faulty")
    arguments = ["verify", "--device", "faulty"]
    for op in ("swiglu", "argmax", "top_k"):
        arguments += ["--op", op]
    result = invoke(arguments)
    assert result.exit_code == 1
    for part in ("swiglu is barred: swiglu", "output is wrong by", "argmax is barred: ", "lost"):
        assert part in result.stdout
    assert "gpu (a card that fails as told, driver 1.0): 12 of 14 runs passed" in result.stdout
    assert "the verdicts are kept" in result.stdout
    assert store.is_barred(GPU, "swiglu")
    assert store.is_barred(GPU, "argmax")
    assert not store.is_barred(GPU, "top_k")


def test_verdicts_need_not_be_kept(store: VerdictStore) -> None:
    arguments = ["verify", "--device", "reference", "--op", "argmax", "--no-save"]
    result = invoke(arguments)
    assert result.exit_code == 0, result.output
    assert "the verdicts are not kept" in result.stdout
    assert store.all() == []


def test_what_is_known_can_be_forgotten(
    store: VerdictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    FaultyBackend(info=GPU).install(monkeypatch, "faulty")
    store.record(GPU, "argmax", passed=False, reason="it was lost once", shape="x 1x8")
    arguments = ["verify", "--device", "faulty", "--op", "argmax"]
    assert invoke(arguments).exit_code == 0
    assert store.is_barred(GPU, "argmax", "x 1x8")
    assert invoke([*arguments, "--forget"]).exit_code == 0
    assert not store.is_barred(GPU, "argmax", "x 1x8")
    assert invoke([*arguments, "--forget", "--no-save"]).exit_code == 2


def test_an_unknown_op_is_an_error(store: VerdictStore) -> None:
    result = invoke(["verify", "--op", "conv"])
    assert result.exit_code == 2
    assert "There is no op conv" in result.stderr
    assert store.all() == []


def test_devices_tells_of_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[DeviceInfo]:
        raise OSError("the loader is broken")

    backend = FaultyBackend()
    monkeypatch.setattr(backend, "list_devices", fail)
    backend.install(monkeypatch, "vulkan")
    monkeypatch.setattr(registry, "may_have_gpu", lambda: True)
    result = invoke(["devices", "--json"])
    assert result.exit_code == 0, result.output
    expected = "The backend vulkan cannot list its devices: OSError: the loader is broken"
    assert expected in result.stderr
    assert [row["name"] for row in json.loads(result.stdout) if row["auto"]] == ["cpu"]


def test_devices_marks_gpus_that_auto_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    FaultyBackend(info=GPU).install(monkeypatch, "vulkan")
    monkeypatch.setattr(registry, "may_have_gpu", lambda: True)
    result = invoke(["devices"])
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("gpu "))
    assert row.rstrip().endswith("if it pays")
