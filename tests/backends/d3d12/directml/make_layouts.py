"""Writes `layouts.json`: what a C++ compiler says of the public DirectML.h.

    python make_layouts.py INCLUDE > layouts.json

INCLUDE is the include folder of DirectX-Headers (MIT; Debian's package directx-headers-dev) with
`directx/DirectML.h` and the `wsl/` stubs that let it compile outside Windows. The values come from
sizeof, offsetof, the enumerators, and the addresses and types of virtual methods (slot, number of
arguments), so none is typed by hand; only the identifiers of the interfaces are read from the
header's text.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

STRUCTURES = {
    "DML_BUFFER_TENSOR_DESC": (
        "DataType Flags DimensionCount Sizes Strides TotalTensorSizeInBytes "
        "GuaranteedBaseOffsetAlignment"
    ),
    "DML_TENSOR_DESC": "Type Desc",
    "DML_OPERATOR_DESC": "Type Desc",
    "DML_GEMM_OPERATOR_DESC": (
        "ATensor BTensor CTensor OutputTensor TransA TransB Alpha Beta FusedActivation"
    ),
    "DML_ACTIVATION_SOFTMAX_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_RELU_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_SIGMOID_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_TANH_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ELEMENT_WISE_ADD_OPERATOR_DESC": "ATensor BTensor OutputTensor",
    "DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC": "ATensor BTensor OutputTensor",
    "DML_CAST_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_BINDING_PROPERTIES": (
        "RequiredDescriptorCount TemporaryResourceSize PersistentResourceSize"
    ),
    "DML_BINDING_TABLE_DESC": (
        "Dispatchable CPUDescriptorHandle GPUDescriptorHandle SizeInDescriptors"
    ),
    "DML_BINDING_DESC": "Type Desc",
    "DML_BUFFER_BINDING": "Buffer Offset SizeInBytes",
    "DML_BUFFER_ARRAY_BINDING": "BindingCount Bindings",
    "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT": "DataType",
    "DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT": "IsSupported",
}

CONSTANTS = """
DML_TENSOR_DATA_TYPE_FLOAT32 DML_TENSOR_DATA_TYPE_FLOAT16
DML_TENSOR_TYPE_BUFFER DML_TENSOR_FLAG_NONE DML_TENSOR_FLAG_OWNED_BY_DML
DML_OPERATOR_ELEMENT_WISE_ADD DML_OPERATOR_ELEMENT_WISE_MULTIPLY
DML_OPERATOR_ACTIVATION_RELU DML_OPERATOR_ACTIVATION_SIGMOID DML_OPERATOR_ACTIVATION_TANH
DML_OPERATOR_ACTIVATION_SOFTMAX DML_OPERATOR_GEMM DML_OPERATOR_CAST
DML_MATRIX_TRANSFORM_NONE DML_MATRIX_TRANSFORM_TRANSPOSE
DML_BINDING_TYPE_NONE DML_BINDING_TYPE_BUFFER DML_BINDING_TYPE_BUFFER_ARRAY
DML_EXECUTION_FLAG_NONE DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION
DML_EXECUTION_FLAG_DISABLE_META_COMMANDS DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE
DML_CREATE_DEVICE_FLAG_NONE DML_CREATE_DEVICE_FLAG_DEBUG
DML_FEATURE_TENSOR_DATA_TYPE_SUPPORT DML_FEATURE_LEVEL_2_0
DML_TEMPORARY_BUFFER_ALIGNMENT DML_PERSISTENT_BUFFER_ALIGNMENT
DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT
"""

METHODS = {
    "IDMLObject": "GetPrivateData SetPrivateData SetPrivateDataInterface SetName",
    "IDMLDevice": (
        "CheckFeatureSupport CreateOperator CompileOperator CreateOperatorInitializer "
        "CreateCommandRecorder CreateBindingTable Evict MakeResident GetDeviceRemovedReason "
        "GetParentDevice"
    ),
    "IDMLDeviceChild": "GetDevice",
    "IDMLOperator": "GetDevice",
    "IDMLDispatchable": "GetBindingProperties",
    "IDMLCompiledOperator": "GetBindingProperties",
    "IDMLOperatorInitializer": "GetBindingProperties Reset",
    "IDMLBindingTable": (
        "BindInputs BindOutputs BindTemporaryResource BindPersistentResource Reset"
    ),
    "IDMLCommandRecorder": "RecordDispatch",
}

# A pointer to a virtual method of the Itanium C++ ABI holds 1 + the offset in the table.
PROGRAM = """
#include <wsl/winadapter.h>
#include <directx/DirectML.h>
#include <cstddef>
#include <cstdio>
#include <cstring>

template <typename Method> long slot(Method method) {
    long offset;
    std::memcpy(&offset, &method, sizeof offset);
    return (offset - 1) / (long)sizeof(void *);
}

template <typename Result, typename Class, typename... Arguments>
long arguments(Result (Class::*)(Arguments...)) {
    return sizeof...(Arguments);
}

int main() {
    std::printf("{\\n");
%s
    std::printf("}\\n");
}
"""


def program(header: str) -> str:
    """The C++ program that prints the JSON."""
    sections: dict[str, list[str]] = {"structures": [], "constants": [], "interfaces": []}
    for name, fields in STRUCTURES.items():
        places = [f'\\"{field}\\": [%zu, %zu]' for field in fields.split()]
        values = ", ".join(f"offsetof({name}, {f}), sizeof({name}::{f})" for f in fields.split())
        sections["structures"].append(
            _print(
                f'\\"{name}\\": {{\\"size\\": %zu, \\"fields\\": {{{", ".join(places)}}}}}',
                f"sizeof({name}), {values}",
            )
        )
    for name in CONSTANTS.split():
        sections["constants"].append(_print(f'\\"{name}\\": %d', f"(int){name}"))
    for name, methods in METHODS.items():
        found = re.search(rf'DML_DECLARE_INTERFACE\("([-0-9a-f]+)"\) {name}\b', header)
        if found is None:
            raise SystemExit(f"{name} is not declared in this DirectML.h")
        slots = ", ".join(f'\\"{method}\\": [%ld, %ld]' for method in methods.split())
        values = ", ".join(
            f"slot(&{name}::{method}), arguments(&{name}::{method})" for method in methods.split()
        )
        sections["interfaces"].append(
            _print(
                f'\\"{name}\\": {{\\"iid\\": \\"{found[1]}\\", \\"methods\\": {{{slots}}}}}', values
            )
        )
    lines = []
    for number, (section, prints) in enumerate(sections.items()):
        lines.append(f'    std::printf(" \\"{section}\\": {{\\n");')
        lines.append('\n    std::printf(",\\n");\n'.join(prints))
        lines.append(f'    std::printf("\\n }}{"," if number < len(sections) - 1 else ""}\\n");')
    return PROGRAM % "\n".join(lines)


def _print(text: str, values: str) -> str:
    return f'    std::printf("  {text}", {values});'


def main() -> None:
    """Compiles the program against the headers given, and prints what it prints."""
    include = Path(sys.argv[1])
    header = (include / "directx" / "DirectML.h").read_text()
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "layouts.cpp", Path(folder) / "layouts"
        source.write_text(program(header))
        includes = [f"-I{include}", f"-I{include}/wsl/stubs"]
        subprocess.run(["g++", "-w", *includes, str(source), "-o", str(binary)], check=True)
        sys.stdout.write(
            subprocess.run([binary], check=True, capture_output=True, text=True).stdout
        )


if __name__ == "__main__":
    main()
