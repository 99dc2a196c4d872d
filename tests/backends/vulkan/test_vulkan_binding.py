"""The tables of structures, functions and numbers against the declarations of the API.

These come with the PyPI package `vulkan`, whose binding itself is not used.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from crossinfer.backends.vulkan import constants, structures
from crossinfer.backends.vulkan.functions import signatures

_ENUMS = {
    constants.DeviceType: "VK_PHYSICAL_DEVICE_TYPE_{}",
    constants.QueueFlag: "VK_QUEUE_{}_BIT",
    constants.MemoryFlag: "VK_MEMORY_PROPERTY_{}_BIT",
    constants.Stage: "VK_PIPELINE_STAGE_{}_BIT",
    constants.AccessFlag: "VK_ACCESS_{}_BIT",
    constants.BufferUsage: "VK_BUFFER_USAGE_{}_BIT",
    constants.Severity: "VK_DEBUG_UTILS_MESSAGE_SEVERITY_{}_BIT_EXT",
    constants.Result: "{}",
}
_NUMBERS = {
    "DESCRIPTOR_STORAGE_BUFFER": "VK_DESCRIPTOR_TYPE_STORAGE_BUFFER",
    "STAGE_COMPUTE": "VK_SHADER_STAGE_COMPUTE_BIT",
    "BIND_POINT_COMPUTE": "VK_PIPELINE_BIND_POINT_COMPUTE",
    "QUERY_TIMESTAMP": "VK_QUERY_TYPE_TIMESTAMP",
    "QUERY_RESULT_64": "VK_QUERY_RESULT_64_BIT",
    "QUERY_RESULT_WITH_AVAILABILITY": "VK_QUERY_RESULT_WITH_AVAILABILITY_BIT",
    "HEAP_DEVICE_LOCAL": "VK_MEMORY_HEAP_DEVICE_LOCAL_BIT",
    "MESSAGE_TYPE_VALIDATION": "VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT",
    "VALIDATE_SYNCHRONIZATION": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
    "COMMAND_POOL_RESET": "VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT",
}


@pytest.fixture(scope="module")
def header() -> str:
    """The API's declarations as text."""
    package = importlib.util.find_spec("vulkan")
    if package is None or package.origin is None:
        pytest.skip("The package vulkan is not installed; it is a dependency of the tests.")
    return (Path(package.origin).parent / "vulkan.cdef.h").read_text()


@pytest.fixture(scope="module")
def parser() -> Any:
    return pytest.importorskip("cffi").FFI()


@pytest.fixture(scope="module")
def declarations(header: str, parser: Any) -> dict[str, Any]:
    """Every structure and function of our tables as the API declares it, by name."""
    structures_ = "".join(f"{name} {name};" for name in structures.names())
    functions = "".join(f"PFN_{name} {name};" for name in signatures())
    # One type that holds all of them: asking for each would parse the header each time.
    parser.cdef(f"{header} struct everything {{ {structures_} {functions} }};")
    return {name: field.type for name, field in parser.typeof("struct everything").fields}


@pytest.fixture(scope="module")
def numbers(header: str) -> dict[str, int]:
    """Every enumerator of the API."""
    found = re.findall(r"^\s*(VK_\w+) = (0x[0-9A-Fa-f]+|-?\d+)", header, re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


@pytest.mark.parametrize("name", structures.names())
def test_structures(
    declarations: dict[str, Any], parser: Any, numbers: dict[str, int], name: str
) -> None:
    structure, declared = getattr(structures, name), declarations[name]
    assert ctypes.sizeof(structure) == parser.sizeof(declared)
    offsets = {field: kind.offset for field, kind in declared.fields}
    for field, *_ in structure._fields_:
        if not field.startswith("skipped"):
            assert getattr(structure, field).offset == offsets[field], field
    if structure.structure_type is not None:
        (given,) = {n for n in numbers if n.startswith("VK_STRUCTURE_TYPE_") and _same(n, name)}
        assert structure.structure_type == numbers[given]


def _same(enumerator: str, structure: str) -> bool:
    """VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO and VkPipelineCacheCreateInfo."""
    words = enumerator.removeprefix("VK_STRUCTURE_TYPE_").replace("_", "").lower()
    return words == structure.removeprefix("Vk").lower()


@pytest.mark.parametrize("name", signatures())
def test_functions(declarations: dict[str, Any], parser: Any, name: str) -> None:
    function = declarations[name]
    expected = [
        "p" if argument.kind == "pointer" else {4: "u", 8: "q"}[parser.sizeof(argument)]
        for argument in function.args
    ]
    expected += ["-"] if function.result.kind == "void" else []
    assert signatures()[name] == expected


def test_numbers(numbers: dict[str, int]) -> None:
    for enum, pattern in _ENUMS.items():
        for member in enum:
            given = pattern.format(member.name)
            if member.name.endswith("_AMD"):
                given = pattern.format(member.name.removesuffix("_AMD")) + "_AMD"
            assert numbers[given] == member.value, given
    for name, given in _NUMBERS.items():
        assert getattr(constants, name) == numbers[given], given


def test_structures_keep_what_they_point_to() -> None:
    def make() -> Any:
        return structures.VkInstanceCreateInfo(
            pApplicationInfo=structures.VkApplicationInfo(pEngineName=b"an engine"),
            ppEnabledLayerNames=structures.strings(["first", "second"]),
        )

    made = [make() for _ in range(200)]
    gc.collect()
    for info in made:
        application = structures.VkApplicationInfo.from_address(info.pApplicationInfo)
        assert ctypes.string_at(application.pEngineName) == b"an engine"
        names = (ctypes.c_char_p * 2).from_address(info.ppEnabledLayerNames)
        assert list(names) == [b"first", b"second"]
