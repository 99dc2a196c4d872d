"""Backends by name, and what `auto` takes."""

from __future__ import annotations

import sys
import types

import pytest

from crossinfer.backends.null import NullDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import DeviceError, InvalidUse
from crossinfer.hal import registry
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo, DeviceKind


class KindDevice(NullDevice):
    """A null device under another name and kind."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__()
        self.info = info


def install(monkeypatch: pytest.MonkeyPatch, backends: dict[str, tuple[DeviceKind, ...]]) -> None:
    """Replace all backends by ones that find devices of these kinds."""
    table = {}
    for name, kinds in backends.items():
        infos = [
            DeviceInfo(f"{name}:{index}" if index else name, kind, "", "1")
            for index, kind in enumerate(kinds)
        ]

        def open_device(
            index: int, *, threads: int | None = None, infos: list[DeviceInfo] = infos
        ) -> Device:
            del threads
            return KindDevice(infos[index])

        module = types.ModuleType(f"fake_backend_{name}")
        module.list_devices = lambda infos=infos: infos  # type: ignore[attr-defined]
        module.open_device = open_device  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        table[name] = module.__name__
    monkeypatch.setattr(registry, "BACKENDS", table)


def opened(name: str) -> str:
    with registry.open_device(name) as device:
        return device.info.name


def test_every_backend_can_be_opened_under_the_names_it_lists() -> None:
    names = [info.name for info in registry.list_devices()]
    assert {"reference", "null"} <= set(names)
    assert [opened(name) for name in names] == names


def test_the_reference_is_taken_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    real = {name: registry.BACKENDS[name] for name in ("null", "reference")}
    monkeypatch.setattr(registry, "BACKENDS", real)
    with registry.open_device() as device:
        assert isinstance(device, ReferenceDevice)


def test_null_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BACKENDS", {"null": registry.BACKENDS["null"]})
    with pytest.raises(DeviceError, match="No usable device"):
        registry.open_device()


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        ({"vulkan": (DeviceKind.DISCRETE_GPU,), "cpu": (DeviceKind.CPU,)}, "cpu"),
        ({"reference": (DeviceKind.REFERENCE,), "cpu": (DeviceKind.CPU,)}, "cpu"),
        ({"vulkan": (DeviceKind.INTEGRATED_GPU,), "cpu": (DeviceKind.CPU,)}, "cpu"),
        ({"kfd": (DeviceKind.SIMULATED,), "cpu": (DeviceKind.CPU,)}, "cpu"),
        ({"npu": (DeviceKind.NPU,), "reference": (DeviceKind.REFERENCE,)}, "reference"),
    ],
)
def test_auto(
    monkeypatch: pytest.MonkeyPatch, backends: dict[str, tuple[DeviceKind, ...]], expected: str
) -> None:
    install(monkeypatch, backends)
    assert opened("auto") == expected


def test_auto_never_takes_software_or_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"vulkan": (DeviceKind.SOFTWARE_GPU,), "kfd": (DeviceKind.SIMULATED,)})
    with pytest.raises(DeviceError, match="No usable device"):
        registry.open_device("auto")
    assert opened("vulkan") == "vulkan"


def test_gpus_for_auto_are_discrete_first_and_of_two_backends_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discrete, integrated = DeviceKind.DISCRETE_GPU, DeviceKind.INTEGRATED_GPU
    install(
        monkeypatch,
        {
            "kfd": (discrete,),
            "vulkan": (integrated, discrete, DeviceKind.SOFTWARE_GPU),
            "d3d12": (discrete, DeviceKind.NPU),
        },
    )
    monkeypatch.setattr(registry, "may_have_gpu", lambda: True)
    names = [info.name for info in registry.automatic_gpus()]
    assert names == ["vulkan:1", "d3d12", "vulkan"]
    monkeypatch.setattr(registry, "may_have_gpu", lambda: False)
    assert registry.automatic_gpus() == []


def test_a_backend_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"vulkan": (), "gone": (), "cpu": (DeviceKind.CPU,)})

    def fail() -> list[DeviceInfo]:
        raise OSError("no driver answers")

    module = sys.modules[registry.BACKENDS["vulkan"]]
    module.list_devices = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(registry.BACKENDS, "gone", "crossinfer.backends.nowhere")
    found = registry.find_devices()
    assert [info.name for info in found.devices] == ["cpu"]
    assert found.problems["vulkan"] == "OSError: no driver answers"
    assert "ModuleNotFoundError" in found.problems["gone"]
    assert registry.list_devices() == found.devices
    assert opened("auto") == "cpu"
    with pytest.raises(OSError, match="no driver answers"):  # who names it is told
        registry.open_device("vulkan")


@pytest.mark.parametrize("name", ["", "abacus", "gpu:", "gpu:x", "gpu:-1", ":0"])
def test_unknown_names(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install(monkeypatch, {"gpu": (DeviceKind.DISCRETE_GPU,), "cpu": (DeviceKind.CPU,)})
    with pytest.raises(InvalidUse, match=r"There is no device .* backends are gpu, cpu "):
        registry.open_device(name)


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"gpu": (DeviceKind.DISCRETE_GPU,) * 2, "gone": ()})
    assert opened("gpu:1") == "gpu:1"
    with pytest.raises(InvalidUse, match="'gpu:2': the backend gpu finds 2"):
        registry.open_device("gpu:2")
    with pytest.raises(InvalidUse, match="'gone': the backend gone finds 0"):
        registry.open_device("gone")


def test_threads_reach_the_backend() -> None:
    with registry.open_device("reference", threads=3) as device:
        assert isinstance(device, ReferenceDevice)
        assert device._pool._max_workers == 3
