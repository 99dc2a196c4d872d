"""What `auto` takes: a GPU that verifies, fits and pays, or the host."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_backend import FaultyBackend
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceWarning
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import OutOfDeviceMemory
from crossinfer.hal import registry
from crossinfer.hal.faults import Fault, FaultKind
from crossinfer.hal.fence import Fence
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.recording import Recording
from crossinfer.hal.verdicts import Finding, VerdictStore
from crossinfer.verify import speed

PROMPT = list(range(20, 40))
DISCRETE = DeviceInfo("vulkan", DeviceKind.DISCRETE_GPU, "a card", "driver 1.0")
INTEGRATED = dataclasses.replace(DISCRETE, kind=DeviceKind.INTEGRATED_GPU)
HOST = "reference"

Install = Callable[..., FaultyBackend]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerdictStore:
    made = VerdictStore(tmp_path / "verdicts.json")
    monkeypatch.setattr(VerdictStore, "default", lambda: made)
    monkeypatch.setattr(registry, "may_have_gpu", lambda: True)
    monkeypatch.setattr(registry, "BACKENDS", {HOST: registry.BACKENDS[HOST]})
    monkeypatch.setattr(speed, "WEIGHT_BYTES", 1 << 16)
    return made


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """The devices of a backend that GPUs may be taken from, failing as told."""

    def made(
        *faults: Fault, info: DeviceInfo = DISCRETE, name: str = "vulkan", **options: Any
    ) -> FaultyBackend:
        backend = FaultyBackend(faults, info=info, **options)
        backend.install(monkeypatch, name)
        return backend

    return made


@pytest.fixture
def path(tiny_models: TinyModels) -> Path:
    return tiny_models("tiny-llama")


def taken(path: Path) -> tuple[list[str], str]:
    """The devices that an LLM has, and what it says of its plan; its answer is checked too."""
    with LLM(path, HOST, context=64) as llm:
        expected = llm.generate(PROMPT, max_tokens=3).tokens
    with LLM(path, context=64) as llm:
        assert llm.generate(PROMPT, max_tokens=3).tokens == expected
        return [info.name for info in llm.devices], llm.explain()


def test_a_discrete_gpu_is_taken_with_the_host_behind_it(path: Path, install: Install) -> None:
    backend = install()
    names, explanation = taken(path)
    assert names == ["vulkan", HOST]
    assert "auto" not in explanation
    assert len(backend.opened) == 1
    assert backend.opened[0]._closed


def test_a_gpu_that_fails_in_each_layer_is_not_taken(path: Path, install: Install) -> None:
    backend = install(Fault(FaultKind.WRONG_RESULT, "swiglu", always=True))
    with pytest.warns(DeviceWarning, match="does not run swiglu as it should"):
        names, explanation = taken(path)
    assert names == [HOST]
    assert "auto does not take vulkan (a card): each token would go to and fro" in explanation
    assert "swiglu is barred" in explanation
    assert backend.opened[0]._closed


def test_a_gpu_that_fails_outside_of_the_layers_is_taken(path: Path, install: Install) -> None:
    install(Fault(FaultKind.WRONG_RESULT, "argmax", always=True))
    with pytest.warns(DeviceWarning, match="does not run argmax as it should"):
        names, explanation = taken(path)
    assert names == ["vulkan", HOST]
    assert "argmax is barred" in explanation


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.HANG])
def test_a_gpu_that_is_lost_in_verification_is_not_taken(
    path: Path, install: Install, kind: FaultKind
) -> None:
    backend = install(
        Fault(kind, "rope_kv", always=True), make_inner=lambda: ReferenceDevice(deadline_s=0.3)
    )
    with pytest.warns(DeviceWarning, match="does not run rope_kv"):
        names, explanation = taken(path)
    assert names == [HOST]
    assert "Device vulkan was lost while running rope_kv" in explanation
    assert backend.opened[0]._closed


def test_a_gpu_without_memory_for_the_model_is_not_taken(path: Path, install: Install) -> None:
    install(info=dataclasses.replace(DISCRETE, memory_bytes=150_000))
    names, explanation = taken(path)
    assert names == [HOST]
    assert "auto does not take vulkan (a card)" in explanation


class Full(ReferenceDevice):
    """Other programs have its memory, which its driver doesn't tell."""

    def _alloc(self, size: int) -> object:
        del size
        raise OutOfDeviceMemory("no memory left")


def test_a_gpu_whose_memory_others_have_is_left_out(path: Path, install: Install) -> None:
    backend = install(make_inner=Full)
    with pytest.warns(DeviceWarning) as caught:
        assert taken(path)[0] == [HOST]
    told = [str(warning.message) for warning in caught]
    assert told == ["no memory left", "Device vulkan is not used any more."]
    assert backend.opened[0]._closed


@pytest.mark.parametrize("options", [{"device": ["vulkan", HOST]}, {"gpu_layers": 1}])
def test_a_gpu_that_was_asked_for_is_not_left_out(
    path: Path, install: Install, options: dict[str, Any]
) -> None:
    backend = install(make_inner=Full)
    with pytest.raises(OutOfDeviceMemory, match="no memory left"):
        LLM(path, context=64, **options)
    assert backend.opened[0]._closed


def test_a_gpu_with_memory_for_a_part_is_taken(path: Path, install: Install) -> None:
    with LLM(path, HOST, context=64) as llm:
        whole = sum(llm._runner.memory().values())
    install(info=dataclasses.replace(DISCRETE, memory_bytes=whole))  # buckets need more
    names, explanation = taken(path)
    assert names == ["vulkan", HOST]
    assert "Of 2 layers 2 on reference; embedding on vulkan, head on vulkan." in explanation
    assert "vulkan: 0 of 2 layers fill its memory" in explanation


def test_the_faster_of_gpu_and_host_is_taken_if_they_share_a_memory(
    path: Path, install: Install, store: VerdictStore
) -> None:
    class Slow(ReferenceDevice):
        def _submit(self, recording: Recording, params: bytes, fence: Fence) -> None:
            time.sleep(0.02)
            super()._submit(recording, params, fence)

    install(info=INTEGRATED, make_inner=Slow)
    names, explanation = taken(path)
    assert names == [HOST]
    assert "ms for a product with f32 weights that takes reference" in explanation
    what = f"decode f32, {1 << 16} bytes"
    slow = store.measured(INTEGRATED, what)
    assert slow is not None
    assert slow >= 0.02 / 4
    store.record_measured(INTEGRATED, what, 0.0)  # measured once, then remembered
    assert taken(path)[0] == ["vulkan", HOST]


def test_a_discrete_gpu_comes_before_an_integrated_one(
    path: Path, install: Install, store: VerdictStore
) -> None:
    install(info=INTEGRATED)
    install(info=dataclasses.replace(DISCRETE, name="d3d12"), name="d3d12")
    assert taken(path)[0] == ["d3d12", HOST]
    assert store.measured(INTEGRATED, f"decode f32, {1 << 16} bytes") is None


def test_a_driver_that_cannot_open_its_device_is_passed_over(path: Path, install: Install) -> None:
    install().refuses_after = 0
    names, explanation = taken(path)
    assert names == [HOST]
    assert "it fell off the bus" in explanation


def test_a_driver_that_cannot_list_its_devices_is_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[DeviceInfo]:
        raise OSError("the loader is broken")

    backend = FaultyBackend()
    monkeypatch.setattr(backend, "list_devices", fail)
    backend.install(monkeypatch, "vulkan")
    assert taken(path)[0] == [HOST]
    found = registry.find_devices()
    assert found.problems == {"vulkan": "OSError: the loader is broken"}
    assert HOST in [info.name for info in found.devices]


CRASHES = """
    import ctypes, sys
    import pytest
    from tests.engine.test_automatic import DISCRETE
    from tests.faulty_backend import FaultyBackend
    from crossinfer import LLM
    from crossinfer.hal import registry

    class Crashing(FaultyBackend):
        def list_devices(self):
            return ctypes.string_at(0) if sys.argv[2] == "listed" else super().list_devices()

        def open_device(self, index, *, threads=None):
            return ctypes.string_at(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "may_have_gpu", lambda: True)
        patch.setattr(registry, "BACKENDS", {"reference": registry.BACKENDS["reference"]})
        Crashing(info=DISCRETE).install(patch, "vulkan")
        with LLM(sys.argv[1], context=64) as llm:
            print(*(info.name for info in llm.devices), llm.explain())
"""


@pytest.mark.parametrize("when", ["listed", "opened"])
def test_a_driver_that_ends_the_process_does_so_twice(
    path: Path, empty_cache: Path, when: str
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(CRASHES), str(path), when]
    runs = [subprocess.run(command, check=False, capture_output=True, text=True) for _ in range(4)]
    assert all(run.returncode not in (0, 1) for run in runs[:2])
    for run in runs[2:]:
        assert run.returncode == 0, run.stderr
        assert run.stdout.startswith(f"{HOST} auto does not take vulkan: its driver ended")
    assert list(empty_cache.rglob("*.attempt")) == []


@pytest.mark.parametrize(
    ("what", "info"),
    [
        ("search for devices", DeviceInfo("vulkan", DeviceKind.DISCRETE_GPU, "", "")),
        ("opening of the device", DISCRETE),
    ],
)
def test_a_process_that_was_killed_says_nothing_if_the_next_one_goes_well(
    path: Path,
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    info: DeviceInfo,
) -> None:
    install()
    folder = tmp_path / "attempts"
    folder.mkdir()
    for _ in range(2):
        (folder / "x.attempt").write_bytes(VerdictStore.note_of(info, [Finding(what)]))
        store = VerdictStore(tmp_path / "verdicts.json")
        assert store.ended_once(info, what)
        monkeypatch.setattr(VerdictStore, "default", lambda store=store: store)
        assert taken(path)[0] == ["vulkan", HOST]
        assert not store.ended_once(info, what)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vulkan", DeviceKind.SOFTWARE_GPU),
        ("vulkan", DeviceKind.SIMULATED),
        ("kfd", DeviceKind.DISCRETE_GPU),
        ("npu", DeviceKind.NPU),
    ],
)
def test_what_is_never_taken(path: Path, install: Install, name: str, kind: DeviceKind) -> None:
    backend = install(info=dataclasses.replace(DISCRETE, name=name, kind=kind), name=name)
    assert taken(path)[0] == [HOST]
    assert backend.opened == []


def test_where_there_is_no_gpu_no_driver_is_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> list[DeviceInfo]:
        raise AssertionError("drivers take long to load")

    backend = FaultyBackend()
    monkeypatch.setattr(backend, "list_devices", asked)
    backend.install(monkeypatch, "vulkan")
    monkeypatch.setattr(registry, "may_have_gpu", lambda: False)
    assert taken(path)[0] == [HOST]


def test_the_host_goes_on_when_the_gpu_is_gone(path: Path, install: Install) -> None:
    backend = install()
    with LLM(path, HOST, context=64) as llm:
        expected = llm.generate(PROMPT, max_tokens=8).tokens
    with LLM(path, context=64) as llm:
        backend.refuses_after = 1
        backend.faults.append(Fault(FaultKind.LOST, "attention", 5))
        with pytest.warns(DeviceWarning, match="Device vulkan is not used any more"):
            assert llm.generate(PROMPT, max_tokens=8).tokens == expected
        assert [info.name for info in llm.devices] == [HOST]
