"""Ids, slots and numbers against the public headers; see `make_headers.py`.

libvkd3d would not notice most of them: it has no DXGI, no DXCore, no debug layer and no DRED.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.backends.d3d12.make_headers import used_interfaces

from crossinfer.backends.d3d12 import constants, debug, faults
from crossinfer.backends.d3d12.com import Interface, guid

HEADERS = json.loads((Path(__file__).parent / "headers.json").read_text())
NUMBERS: dict[str, int] = HEADERS["numbers"]
DXCORE_NAMES = {
    constants.AdapterProperty.HARDWARE_ID: "HardwareID",
}


@pytest.mark.parametrize("interface", used_interfaces(), ids=str)
def test_ids_and_slots(interface: Interface) -> None:
    golden = HEADERS["interfaces"][interface.name]
    assert bytes(interface.iid) == bytes(guid(golden["iid"]))
    own = {n: m for n, m in interface.methods.items() if n in golden["methods"]}
    for name, (slot, signature) in own.items():
        assert [slot, len(signature.arguments)] == golden["methods"][name], name
    inherited = interface.base.methods if interface.base is not None else {}
    assert interface.methods.keys() - own.keys() <= inherited.keys()


@pytest.mark.parametrize(
    ("enumeration", "prefix"),
    [
        (constants.ListType, "D3D12_COMMAND_LIST_TYPE_"),
        (constants.Heap, "D3D12_HEAP_TYPE_"),
        (constants.State, "D3D12_RESOURCE_STATE_"),
        (constants.BarrierType, "D3D12_RESOURCE_BARRIER_TYPE_"),
        (constants.Feature, "D3D12_FEATURE_"),
    ],
)
def test_enumerations(enumeration: type[constants.Heap], prefix: str) -> None:
    for name, value in enumeration.__members__.items():
        assert value == NUMBERS[prefix + name], name


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("D3D_FEATURE_LEVEL_1_0_CORE", constants.FeatureLevel.CORE_1_0),
        ("D3D_FEATURE_LEVEL_11_0", constants.FeatureLevel.LEVEL_11_0),
        ("D3D_ROOT_SIGNATURE_VERSION_1", constants.ROOT_SIGNATURE_1_0),
        ("D3D_SHADER_MODEL_6_0", constants.SHADER_MODEL_6_0),
        ("D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS", constants.ParameterType.CONSTANTS),
        ("D3D12_ROOT_PARAMETER_TYPE_SRV", constants.ParameterType.SRV),
        ("D3D12_ROOT_PARAMETER_TYPE_UAV", constants.ParameterType.UAV),
        ("D3D12_RESOURCE_DIMENSION_BUFFER", constants.RESOURCE_BUFFER),
        ("D3D12_TEXTURE_LAYOUT_ROW_MAJOR", constants.LAYOUT_ROW_MAJOR),
        ("D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS", constants.ALLOW_UNORDERED_ACCESS),
        ("D3D12_QUERY_HEAP_TYPE_TIMESTAMP", constants.QUERY_HEAP_TIMESTAMP),
        ("D3D12_QUERY_TYPE_TIMESTAMP", constants.QUERY_TIMESTAMP),
        ("D3D12_DRED_ENABLEMENT_FORCED_ON", constants.DRED_FORCED_ON),
        ("D3D12_MESSAGE_SEVERITY_INFO", debug._WORST_SEVERITY_OF_NO_INTEREST),
        ("DXGI_ADAPTER_FLAG_SOFTWARE", constants.ADAPTER_SOFTWARE),
        ("DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE", constants.PREFER_HIGH_PERFORMANCE),
        ("DXGI_MEMORY_SEGMENT_GROUP_LOCAL", constants.SEGMENT_LOCAL),
    ],
)
def test_numbers(name: str, ours: int) -> None:
    assert ours == NUMBERS[name]


def test_the_properties_of_dxcore() -> None:
    for member in constants.AdapterProperty:
        usual = "".join(word.capitalize() for word in member.name.split("_"))
        assert member == NUMBERS[DXCORE_NAMES.get(member, usual)], member.name


def test_the_attributes_of_dxcore() -> None:
    guids = HEADERS["guids"]
    assert guids["DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE"] == constants.CORE_COMPUTE
    assert guids["DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS"] == constants.GRAPHICS


def test_the_operations_that_breadcrumbs_tell() -> None:
    assert faults._OPERATIONS
    for value, name in faults._OPERATIONS.items():
        assert value == NUMBERS[f"D3D12_AUTO_BREADCRUMB_OP_{name}"]
