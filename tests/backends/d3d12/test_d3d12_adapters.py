"""Which adapters are listed, in what order, under what names; over fakes of DXGI and DXCore."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.d3d12_driver import NO_DIRECT3D, has_direct3d

from crossinfer.backends.d3d12 import adapters, dxcore, dxgi, list_devices, opening
from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.adapter import Adapter, driver_name
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.constants import AdapterProperty, FeatureLevel
from crossinfer.backends.d3d12.interfaces import (
    ID3D12Device,
    IDXCoreAdapter,
    IDXCoreAdapterFactory,
    IDXCoreAdapterList,
    IDXGIAdapter1,
    IDXGIAdapter3,
    IDXGIFactory1,
    IDXGIFactory6,
)
from crossinfer.backends.d3d12.structures import (
    D3D12_FEATURE_DATA_ARCHITECTURE,
    DXGI_ADAPTER_DESC1,
    DXGI_QUERY_VIDEO_MEMORY_INFO,
)
from crossinfer.core.errors import InvalidUse
from crossinfer.hal.info import DeviceKind
from crossinfer.hal.registry import automatic_device

NATIVE = Abi.WINDOWS if sys.platform == "win32" else Abi.SYSV
NOT_FOUND = -0x7785FFFE
FAILED = -0x7FFFBFFB
GB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Card:
    """What a fake adapter tells."""

    name: str
    luid: int
    vendor: int = 0x10DE
    memory: int = 8 * GB
    shared: int = 16 * GB
    flags: int = 0
    integrated: bool = False
    budget: int | None = None
    describes_itself: bool = True
    takes_direct3d: bool = True
    draws: bool = True
    hardware: bool = True
    valid: bool = True


RTX = Card("RTX", 1, budget=7 * GB)
ARC = Card("Arc", 2, vendor=0x8086, integrated=True, memory=128 << 20)
WARP = Card("Basic Render Driver", 3, vendor=0x1414, flags=2)
NPU = Card("NPU", 4, vendor=0x8086, draws=False, memory=0)


class FakeSystem:
    """Fakes of DXGI, DXCore and Direct3D over a row of cards."""

    def __init__(self, cards: Sequence[Card], *, by_preference: bool = True) -> None:
        self.world = World()
        self._cards = cards
        self._by_preference = by_preference
        self._by_address: dict[int, Card] = {}

    def dxgi(self) -> list[Adapter]:
        methods: dict[str, Any] = {
            "QueryInterface": self._query_factory,
            "EnumAdapters1": self._enum,
            "EnumAdapterByGpuPreference": lambda n, _p, _iid, place: self._enum(n, place),
        }
        interface = IDXGIFactory6 if self._by_preference else IDXGIFactory1
        methods = {name: m for name, m in methods.items() if name in interface.methods}
        self._factory = FakeObject(self.world, interface, methods)
        held = ComObject(self._factory.address, IDXGIFactory1, NATIVE)
        return dxgi.listed(self, held)  # type: ignore[arg-type]

    def dxcore(self) -> list[Adapter]:
        listed = FakeObject(
            self.world,
            IDXCoreAdapterList,
            {
                "GetAdapterCount": lambda: len(self._cards),
                "GetAdapter": lambda n, _iid, place: self._core_adapter(self._cards[n], place),
            },
        )
        factory = FakeObject(
            self.world,
            IDXCoreAdapterFactory,
            {"CreateAdapterList": lambda _count, _which, _iid, place: listed.give(place)},
        )
        held = ComObject(factory.address, IDXCoreAdapterFactory, NATIVE)
        return dxcore.listed(self, held)  # type: ignore[arg-type]

    # Direct3D.

    def supports(self, adapter: ComObject, level: FeatureLevel) -> bool:
        card = self._by_address[adapter.address]
        usual = FeatureLevel.LEVEL_11_0 if card.draws else FeatureLevel.CORE_1_0
        return card.takes_direct3d and level is usual

    def create_device(self, adapter: ComObject, _level: FeatureLevel) -> ComObject:
        card = self._by_address[adapter.address]

        def check(_feature: int, place: int, _size: int) -> int:
            D3D12_FEATURE_DATA_ARCHITECTURE.from_address(place).UMA = card.integrated
            return 0

        made = FakeObject(self.world, ID3D12Device, {"CheckFeatureSupport": check})
        return ComObject(made.address, ID3D12Device, NATIVE)

    # DXGI.

    def _query_factory(self, iid: int, place: int) -> int:
        wanted = ctypes.string_at(iid, 16) == bytes(IDXGIFactory6.iid)
        if not (wanted and self._by_preference):
            return FAILED
        self._factory.references += 1
        return self._factory.give(place)

    def _enum(self, number: int, place: int) -> int:
        if number >= len(self._cards):
            return NOT_FOUND
        card = self._cards[number]

        def desc(place: int) -> int:
            if not card.describes_itself:
                return FAILED
            found = DXGI_ADAPTER_DESC1.from_address(place)
            text = card.name.encode("utf-16-le")
            found.Description[: len(text) // 2] = list(memoryview(text).cast("H"))
            found.VendorId, found.DeviceId, found.Flags = card.vendor, 0x1234, card.flags
            found.DedicatedVideoMemory, found.SharedSystemMemory = card.memory, card.shared
            found.AdapterLuid.LowPart = card.luid
            return 0

        def query(iid: int, place: int) -> int:
            if card.budget is None or ctypes.string_at(iid, 16) != bytes(IDXGIAdapter3.iid):
                return FAILED
            made.references += 1
            return made.give(place)

        def memory(_node: int, _group: int, place: int) -> int:
            DXGI_QUERY_VIDEO_MEMORY_INFO.from_address(place).Budget = card.budget or 0
            return 0

        def version(_iid: int, place: int) -> int:
            ctypes.c_int64.from_address(place).value = 31 << 48 | 15 << 16 | 3623
            return 0

        made = FakeObject(
            self.world,
            IDXGIAdapter3,
            {
                "QueryInterface": query,
                "GetDesc1": desc,
                "CheckInterfaceSupport": version,
                "QueryVideoMemoryInfo": memory,
            },
        )
        self._by_address[made.address] = card
        assert IDXGIAdapter1.methods.items() <= IDXGIAdapter3.methods.items()
        return made.give(place)

    # DXCore.

    def _core_adapter(self, card: Card, place: int) -> int:
        numbers: dict[int, Any] = {
            AdapterProperty.INSTANCE_LUID: (card.luid, 8),
            AdapterProperty.DRIVER_VERSION: (31 << 48 | 15 << 16 | 3623, 8),
            AdapterProperty.HARDWARE_ID: (card.vendor | 0x1234 << 32, 16),
            AdapterProperty.DEDICATED_ADAPTER_MEMORY: (card.memory, 8),
            AdapterProperty.SHARED_SYSTEM_MEMORY: (card.shared, 8),
            AdapterProperty.IS_HARDWARE: (card.hardware, 1),
            AdapterProperty.IS_INTEGRATED: (card.integrated, 1),
        }
        text = card.name.encode() + b"\0"

        def get(name: int, size: int, place: int) -> int:
            if not card.describes_itself:
                return FAILED
            if name == AdapterProperty.DRIVER_DESCRIPTION:
                ctypes.memmove(place, text, min(size, len(text)))
                return 0
            value, expected = numbers[name]
            assert size == expected
            ctypes.memmove(place, int(value).to_bytes(expected, "little"), expected)
            return 0

        def size_of(_name: int, place: int) -> int:
            ctypes.c_size_t.from_address(place).value = len(text)
            return 0

        made = FakeObject(
            self.world,
            IDXCoreAdapter,
            {
                "IsValid": lambda: card.valid,
                "IsAttributeSupported": lambda _attribute: card.draws,
                "GetProperty": get,
                "GetPropertySize": size_of,
            },
        )
        self._by_address[made.address] = card
        return made.give(place)


def _names(found: Sequence[Adapter]) -> list[str]:
    return [adapter.description for adapter in found]


@pytest.mark.parametrize("by_preference", [True, False])
def test_dxgis_order_is_kept_and_kinds_are_told(by_preference: bool) -> None:
    system = FakeSystem([RTX, WARP, ARC], by_preference=by_preference)
    found = system.dxgi()
    assert _names(found) == ["RTX", "Basic Render Driver", "Arc"]
    assert [a.kind for a in found] == [
        DeviceKind.DISCRETE_GPU,
        DeviceKind.SOFTWARE_GPU,
        DeviceKind.INTEGRATED_GPU,
    ]
    assert [a.memory_bytes for a in found] == [7 * GB, None, 16 * GB + (128 << 20)]
    assert found[0].driver == "driver 31.0.15.3623 [10de:1234]"
    assert (found[0].vendor_id, found[0].product_id) == (0x10DE, 0x1234)
    assert system.world.complaints == []


def test_software_comes_last_and_npus_before_it() -> None:
    both = FakeSystem([RTX, WARP]).dxgi(), FakeSystem([RTX, NPU]).dxcore()
    found = adapters.merged(*both)
    assert _names(found) == ["RTX", "NPU", "Basic Render Driver"]
    assert found[1].kind is DeviceKind.NPU
    assert found[1].level is FeatureLevel.CORE_1_0
    assert found[1].memory_bytes is None
    named = [opening.describe(adapter, n).name for n, adapter in enumerate(found)]
    assert named == ["d3d12", "d3d12:1", "d3d12:2"]


def test_dxcore_knows_which_gpus_are_integrated() -> None:
    told_by_dxgi = FakeSystem([dataclasses.replace(ARC, integrated=False)]).dxgi()
    assert told_by_dxgi[0].kind is DeviceKind.DISCRETE_GPU
    found = adapters.merged(told_by_dxgi, FakeSystem([ARC]).dxcore())
    assert [a.kind for a in found] == [DeviceKind.INTEGRATED_GPU]


def test_odd_adapters_hide_no_others() -> None:
    odd = [
        dataclasses.replace(RTX, name="mute", luid=9, describes_itself=False),
        dataclasses.replace(RTX, name="old", luid=10, takes_direct3d=False),
        RTX,
        dataclasses.replace(RTX, name="the same again"),
        ARC,
    ]
    system = FakeSystem(odd)
    assert _names(system.dxgi()) == ["RTX", "Arc"]
    assert system.world.complaints == []
    gone = [
        dataclasses.replace(NPU, name="gone", luid=11, valid=False),
        dataclasses.replace(NPU, name="emulated", luid=12, hardware=False),
        dataclasses.replace(NPU, name="mute", luid=13, describes_itself=False),
        dataclasses.replace(NPU, name="refuses", luid=14, takes_direct3d=False),
        NPU,
        dataclasses.replace(NPU, name="the same again"),
    ]
    assert _names(FakeSystem(gone).dxcore()) == ["NPU"]


def test_a_machine_without_adapters() -> None:
    assert FakeSystem([]).dxgi() == []
    assert FakeSystem([]).dxcore() == []
    assert adapters.merged([], []) == []


def test_a_machine_with_software_only() -> None:
    found = adapters.merged(FakeSystem([WARP]).dxgi(), [])
    assert [a.kind for a in found] == [DeviceKind.SOFTWARE_GPU]


def test_nothing_that_was_listed_is_leaked() -> None:
    system = FakeSystem([RTX, ARC, WARP])
    del system.dxgi()[:]
    assert [fake for fake in system.world.alive if fake.interface is ID3D12Device] == []
    assert all(fake.references == 0 for fake in system.world.objects.values())


def test_versions_are_written_as_windows_does() -> None:
    assert driver_name(0, 0x8086, 7) == "driver 0.0.0.0 [8086:0007]"


def test_without_the_library_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_D3D12_LIBRARY", "libthere-is-none.so")
    assert list_devices() == []
    with pytest.raises(InvalidUse, match="no Direct3D 12 device 0; 0 were found"):
        opening.open_d3d12()


def test_a_library_of_something_else_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_D3D12_LIBRARY", "libc.so.6")
    assert list_devices() == []


def test_auto_takes_no_software() -> None:
    if not has_direct3d():
        pytest.skip(NO_DIRECT3D)
    (info, *_) = list_devices()
    assert info.kernel_code
    if info.kind is DeviceKind.SOFTWARE_GPU:
        assert not automatic_device().startswith("d3d12")
