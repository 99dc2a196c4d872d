"""Writes `headers.json`: what the public headers of Direct3D 12, DXGI and DXCore say.

    python -m tests.backends.d3d12.make_headers DIRECTX MINGW > headers.json

DIRECTX is the folder `directx` of DirectX-Headers (MIT; Debian's package directx-headers-dev),
MINGW the include folder of mingw-w64 (Debian's mingw-w64-common), for DXGI. Ids, the order of the
methods in the tables and the values of enumerators are read from the headers' text, for the
interfaces and numbers that the backend uses.
"""

from __future__ import annotations

import functools
import json
import operator
import re
import sys
from pathlib import Path

from crossinfer.backends.d3d12 import interfaces
from crossinfer.backends.d3d12.com import Interface

DIRECTX = ("d3dcommon.h", "d3d12.h", "d3d12sdklayers.h", "dxcore_interface.h")
MINGW = ("dxgi.h", "dxgi1_4.h", "dxgi1_6.h")
NUMBERS = """
D3D_FEATURE_LEVEL_1_0_CORE D3D_FEATURE_LEVEL_11_0 D3D_ROOT_SIGNATURE_VERSION_1
D3D_SHADER_MODEL_6_0
D3D12_COMMAND_LIST_TYPE_DIRECT D3D12_COMMAND_LIST_TYPE_COMPUTE
D3D12_HEAP_TYPE_DEFAULT D3D12_HEAP_TYPE_UPLOAD D3D12_HEAP_TYPE_READBACK
D3D12_RESOURCE_STATE_COMMON D3D12_RESOURCE_STATE_UNORDERED_ACCESS
D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE D3D12_RESOURCE_STATE_COPY_DEST
D3D12_RESOURCE_STATE_COPY_SOURCE D3D12_RESOURCE_STATE_GENERIC_READ
D3D12_RESOURCE_BARRIER_TYPE_TRANSITION D3D12_RESOURCE_BARRIER_TYPE_UAV
D3D12_FEATURE_ARCHITECTURE D3D12_FEATURE_SHADER_MODEL
D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS D3D12_ROOT_PARAMETER_TYPE_SRV
D3D12_ROOT_PARAMETER_TYPE_UAV
D3D12_RESOURCE_DIMENSION_BUFFER D3D12_TEXTURE_LAYOUT_ROW_MAJOR
D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS
D3D12_QUERY_HEAP_TYPE_TIMESTAMP D3D12_QUERY_TYPE_TIMESTAMP
D3D12_DRED_ENABLEMENT_FORCED_ON D3D12_MESSAGE_SEVERITY_INFO
D3D12_AUTO_BREADCRUMB_OP_DISPATCH D3D12_AUTO_BREADCRUMB_OP_COPYBUFFERREGION
D3D12_AUTO_BREADCRUMB_OP_CLEARUNORDEREDACCESSVIEW D3D12_AUTO_BREADCRUMB_OP_RESOURCEBARRIER
D3D12_AUTO_BREADCRUMB_OP_RESOLVEQUERYDATA D3D12_AUTO_BREADCRUMB_OP_INITIALIZEMETACOMMAND
D3D12_AUTO_BREADCRUMB_OP_EXECUTEMETACOMMAND
DXGI_ADAPTER_FLAG_SOFTWARE DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE DXGI_MEMORY_SEGMENT_GROUP_LOCAL
InstanceLuid DriverVersion DriverDescription HardwareID DedicatedAdapterMemory SharedSystemMemory
IsHardware IsIntegrated
"""
OLD_NAMES = {"ID3DBlob": "ID3D10Blob"}
"""Interfaces that a header declares by another name."""
GUIDS = (
    "DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS",
    "DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE",
)


def used_interfaces() -> list[Interface]:
    """Those of the backend's tables."""
    found = [made for made in vars(interfaces).values() if isinstance(made, Interface)]
    return [interface for interface in found if interface.base is not None]


def methods_of(name: str, text: str) -> dict[str, list[int]]:
    """Slot and number of arguments, the object not counted, of each method in the table."""
    table = re.search(rf"struct {name}Vtbl\s*\{{(.*?)END_INTERFACE", text, re.DOTALL)
    if table is not None:  # the table as C sees it
        listed = re.findall(r"\*\s*(\w+)\s*\)\s*\(([^;]*)\)\s*;", table[1])
        # A structure that is returned is declared twice: as a result, then as an argument.
        methods = {method: given.count(",") for method, given in listed}
        return {method: [n, count] for n, (method, count) in enumerate(methods.items())}
    block = re.search(rf"{name} : public IUnknown\s*\{{(.*?)\n\}};", text, re.DOTALL)
    if block is None:
        raise SystemExit(f"{name} is not declared in these headers")
    listed = re.findall(r"STDMETHODCALLTYPE (\w+)\(([^;]*)\) = 0;", block[1])
    return {
        method: [n, given.count(",") + bool(given.strip())]
        for n, (method, given) in enumerate(listed, 3)
    }


def number(name: str, text: str) -> int:
    """The value of an enumerator."""
    found = re.search(rf"\b{name}\s*=\s*([^,}}\n]+)", text)
    if found is None:
        raise SystemExit(f"{name} is not in these headers")
    parts = [
        int(part, 0) if part[0].isdigit() else number(part, text)
        for part in re.findall(r"\w+", found[1])
    ]
    if "+" in found[1]:  # one more than the enumerator before
        return sum(parts)
    return functools.reduce(operator.or_, parts)


def guid(name: str, text: str) -> str:
    found = re.search(rf"DEFINE_GUID\({name}, ([^)]*)\)", text)
    if found is None:
        raise SystemExit(f"{name} is not in these headers")
    parts = [int(part, 16) for part in found[1].split(",")]
    last = "".join(f"{part:02x}" for part in parts[3:])
    return f"{parts[0]:08x}-{parts[1]:04x}-{parts[2]:04x}-{last[:4]}-{last[4:]}"


def main() -> None:
    """Reads the headers and prints."""
    directx, mingw = map(Path, sys.argv[1:])
    paths = [*(directx / name for name in DIRECTX), *(mingw / name for name in MINGW)]
    text = "\n".join(path.read_text() for path in paths)
    found = {}
    for interface in used_interfaces():
        name = OLD_NAMES.get(interface.name, interface.name)
        iid = re.search(rf'MIDL_INTERFACE\("([-0-9a-fA-F]+)"\)\s*{name} :', text)
        if iid is None:
            raise SystemExit(f"{name} is not declared in these headers")
        every = methods_of(name, text)
        names = [name for name in interface.methods if name in every]
        found[interface.name] = {"iid": iid[1].lower(), "methods": {n: every[n] for n in names}}
    numbers = {name: number(name, text) for name in NUMBERS.split()}
    guids = {name: guid(name, text) for name in GUIDS}
    print(json.dumps({"interfaces": found, "numbers": numbers, "guids": guids}, indent=1))


if __name__ == "__main__":
    main()
