"""Structures, constants and tables of methods against what a compiler says of the public header."""

from __future__ import annotations

import ctypes

import pytest
from tests.backends.d3d12.directml.layouts import LAYOUTS, constant

from crossinfer.backends.d3d12.com import Interface, guid
from crossinfer.backends.d3d12.directml import constants, interfaces, structures


def test_the_header_describes_every_structure_of_the_table() -> None:
    assert set(structures.names()) == set(LAYOUTS["structures"])


@pytest.mark.parametrize("name", structures.names())
def test_sizes_and_offsets(name: str) -> None:
    made, golden = getattr(structures, name), LAYOUTS["structures"][name]
    assert ctypes.sizeof(made) == golden["size"]
    fields = {
        field: [getattr(made, field).offset, getattr(made, field).size]
        for field in golden["fields"]
    }
    assert fields == golden["fields"]
    assert [field for field, _ in made._fields_] == list(golden["fields"])


@pytest.mark.parametrize(
    ("enumeration", "prefix"),
    [
        (constants.DataType, "TENSOR_DATA_TYPE_"),
        (constants.OperatorType, "OPERATOR_"),
        (constants.BindingType, "BINDING_TYPE_"),
        (constants.ExecutionFlags, "EXECUTION_FLAG_"),
        (constants.CreateDeviceFlags, "CREATE_DEVICE_FLAG_"),
    ],
)
def test_enumerations(enumeration: type[constants.DataType], prefix: str) -> None:
    for name, value in enumeration.__members__.items():
        assert value == constant(prefix + name), name


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("TENSOR_TYPE_BUFFER", constants.TENSOR_TYPE_BUFFER),
        ("TENSOR_FLAG_NONE", constants.TENSOR_FLAG_NONE),
        ("MATRIX_TRANSFORM_NONE", constants.MATRIX_TRANSFORM_NONE),
        ("MATRIX_TRANSFORM_TRANSPOSE", constants.MATRIX_TRANSFORM_TRANSPOSE),
        ("FEATURE_LEVEL_2_0", constants.FEATURE_LEVEL_2_0),
        ("FEATURE_TENSOR_DATA_TYPE_SUPPORT", constants.FEATURE_TENSOR_DATA_TYPE_SUPPORT),
        ("TEMPORARY_BUFFER_ALIGNMENT", constants.BUFFER_ALIGNMENT),
        ("PERSISTENT_BUFFER_ALIGNMENT", constants.BUFFER_ALIGNMENT),
    ],
)
def test_constants(name: str, ours: int) -> None:
    assert ours == constant(name)


INTERFACES = [
    made for made in vars(interfaces).values() if isinstance(made, Interface) and made.base
]


@pytest.mark.parametrize("interface", INTERFACES, ids=str)
def test_ids_and_slots(interface: Interface) -> None:
    assert interface.base is not None
    golden = LAYOUTS["interfaces"][interface.name]
    assert bytes(interface.iid) == bytes(guid(golden["iid"]))
    own = {n: m for n, m in interface.methods.items() if n not in interface.base.methods}
    for name, (slot, signature) in own.items():
        # A structure that is returned has its place as an argument.
        arguments = len(signature.arguments) - (name == "GetBindingProperties")
        assert [slot, arguments] == golden["methods"][name], name
