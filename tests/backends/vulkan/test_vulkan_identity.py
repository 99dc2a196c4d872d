"""Which devices are listed, in what order, under what names; and machines without any."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.vulkan_driver import NO_DRIVER, has_driver, has_validation

from crossinfer.backends import vulkan
from crossinfer.backends.vulkan import identity, instance
from crossinfer.backends.vulkan.constants import DeviceType, MemoryFlag, QueueFlag
from crossinfer.backends.vulkan.device import _fill_groups
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.physical import MemoryType, PhysicalDevice, QueueFamily
from crossinfer.core.errors import InvalidUse, KernelUnsupported
from crossinfer.hal import registry
from crossinfer.hal.info import DeviceKind


class FakePhysical(PhysicalDevice):
    """A device that is only described."""

    def __init__(self, name: str, kind: int = DeviceType.DISCRETE_GPU, **about: Any) -> None:
        self.name, self.type = name, kind
        self.vendor, self.device = 0x10DE, 0x2335
        self.is_usable = about.get("usable", True)
        self.extensions = frozenset()
        self.heap_sizes = about.get("heaps", [8 << 30])
        self._heap_flags = about.get("heap_flags", [1] * len(self.heap_sizes))
        self.memory_types = about.get("types", [])
        self.queue_families = about.get("families", [QueueFamily(0, QueueFlag.COMPUTE, 64)])

    def driver(self) -> tuple[str, str]:
        return "NVIDIA", "580.1"


def listed(monkeypatch: pytest.MonkeyPatch, *devices: FakePhysical | None) -> list[str]:
    """`name kind` of each device that is listed; None is one whose driver fails."""

    def find(_functions: object, number: int) -> PhysicalDevice:
        device = devices[number]
        if device is None:
            raise VulkanError("vkEnumerateDeviceExtensionProperties", -1)
        return device

    class FakeInstance:
        functions = None

        def physical_devices(self) -> list[int]:
            return list(range(len(devices)))

    monkeypatch.setattr(identity, "PhysicalDevice", find)
    monkeypatch.setattr(vulkan, "shared_instance", FakeInstance)
    return [f"{info.name} {info.description}" for info in vulkan.list_devices()]


def test_the_best_device_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = listed(
        monkeypatch,
        FakePhysical("llvmpipe", DeviceType.CPU, heaps=[99 << 30]),
        FakePhysical("integrated", DeviceType.INTEGRATED_GPU, heaps=[64 << 30]),
        FakePhysical("small"),
        None,
        FakePhysical("old", usable=False),
        FakePhysical("draws only", families=[QueueFamily(0, QueueFlag.GRAPHICS, 64)]),
        FakePhysical("large", heaps=[1 << 20, 24 << 30]),
    )
    assert found == ["vulkan large", "vulkan:1 small", "vulkan:2 integrated", "vulkan:3 llvmpipe"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (DeviceType.DISCRETE_GPU, DeviceKind.DISCRETE_GPU),
        (DeviceType.INTEGRATED_GPU, DeviceKind.INTEGRATED_GPU),
        (DeviceType.VIRTUAL_GPU, DeviceKind.INTEGRATED_GPU),
        (DeviceType.CPU, DeviceKind.SOFTWARE_GPU),
        (DeviceType.OTHER, DeviceKind.SOFTWARE_GPU),
    ],
)
def test_kinds(kind: DeviceType, expected: DeviceKind) -> None:
    info = identity.describe(FakePhysical("card", kind), 2)
    assert info.name == "vulkan:2"
    assert info.kind is expected
    assert info.driver == "NVIDIA 580.1 [10de:2335]"
    assert info.memory_bytes == 8 << 30


def test_memory_is_that_of_the_devices_largest_heap() -> None:
    device = FakePhysical("card", heaps=[64 << 30, 256 << 20, 16 << 30], heap_flags=[0, 1, 1])
    assert device.device_heap() == 2
    assert identity.describe(device, 0).memory_bytes == 16 << 30


def test_memory_types() -> None:
    """As on a discrete card: special kinds are never taken, the window to the host only on need."""
    local, visible = MemoryFlag.DEVICE_LOCAL, MemoryFlag.HOST_VISIBLE | MemoryFlag.HOST_COHERENT
    flags = [
        (MemoryFlag.DEVICE_COHERENT_AMD | local, 2),
        (local | visible, 1),
        (local, 2),
        (visible | MemoryFlag.HOST_CACHED, 0),
        (visible, 0),
        (local | MemoryFlag.PROTECTED, 2),
    ]
    types = [MemoryType(index, int(f), heap) for index, (f, heap) in enumerate(flags)]
    device = FakePhysical("card", types=types)
    everything, nothing = 0b111111, MemoryFlag(0)
    assert device.memory_type(everything, nothing, local, heap=2) == 2
    assert device.memory_type(everything, visible, nothing) == 4
    assert device.memory_type(everything, visible, MemoryFlag.HOST_CACHED) == 3
    assert device.memory_type(0b000010, visible, nothing) == 1
    assert device.memory_type(0b100001, nothing, local) is None


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ([(7, 64), (4, 64), (6, 64)], 2),  # the one that draws nothing
        ([(7, 64), (6, 0)], 0),  # but not without timestamps
        ([(1, 64), (4, 64)], None),
        ([(2, 0)], 0),
    ],
)
def test_the_queue_family(families: list[tuple[int, int]], expected: int | None) -> None:
    made = [QueueFamily(index, flags, bits) for index, (flags, bits) in enumerate(families)]
    found = FakePhysical("card", families=made).compute_family()
    assert (None if found is None else found.index) == expected


@pytest.mark.parametrize(
    ("extension", "expected"),
    [("VK_NV_shader_sm_builtins", 4 * 132), ("VK_AMD_shader_core_properties", 4 * 96), ("", 256)],
)
def test_groups_that_fill_a_device(
    monkeypatch: pytest.MonkeyPatch, extension: str, expected: int
) -> None:
    device = FakePhysical("card")
    device.extensions = frozenset({extension})

    def answer(properties: Any) -> Any:
        given = {"shaderSMCount": 132, "shaderEngineCount": 6, "shaderArraysPerEngineCount": 2}
        for name, value in (given | {"computeUnitsPerShaderArray": 8}).items():
            if hasattr(properties, name):
                setattr(properties, name, value)
        return properties

    monkeypatch.setattr(device, "_chained", answer)
    assert _fill_groups(device, DeviceKind.DISCRETE_GPU) == expected


def test_without_a_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_LIBRARIES", ("libvulkan-that-is-not-here.so",))
    monkeypatch.setattr(instance, "_shared", {})
    assert vulkan.list_devices() == []
    with pytest.raises(InvalidUse, match="There is no Vulkan device 0; 0 were found"):
        vulkan.open_device(0)
    with pytest.raises(KernelUnsupported, match="no Vulkan loader"):
        vulkan.from_vulkan(1, 1, 1, 0, 1)
    with pytest.raises(InvalidUse, match="the backend vulkan finds 0 here"):
        registry.open_device("vulkan")


def test_without_a_driver() -> None:
    """The loader is there, and finds no driver."""
    if not has_driver():
        pytest.skip(NO_DRIVER)
    code = "from crossinfer.backends import vulkan; print(vulkan.list_devices())"
    environment = os.environ | {
        "VK_ICD_FILENAMES": "/no/such/driver.json",
        "VK_DRIVER_FILES": "/no/such/driver.json",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "[]\n"


def test_validation_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_driver():
        pytest.skip(NO_DRIVER)
    monkeypatch.setenv("CROSSINFER_VALIDATION", "1")
    if has_validation():
        with registry.open_device("vulkan") as device:
            assert isinstance(device, vulkan.VulkanDevice)
            assert device.messenger is not None
    monkeypatch.setattr("crossinfer.backends.vulkan.validation.LAYER", "VK_LAYER_not_here")
    monkeypatch.setattr(instance, "_shared", {})
    with pytest.raises(KernelUnsupported, match="VK_LAYER_not_here is not installed"):
        vulkan.open_vulkan()
