"""The structures of DirectML.h, made from one table when they are first used.

`structures.DML_TENSOR_DESC(Type=1, Desc=description)`: what is given for a pointer (a structure, an
array) stays alive as long as the structure that points to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

# A field is `name:type`: p a pointer or object, q 64 bits, f a float; without a type it has 32.
_TABLE = {
    "DML_BUFFER_TENSOR_DESC": (
        "DataType Flags DimensionCount Sizes:p Strides:p TotalTensorSizeInBytes:q "
        "GuaranteedBaseOffsetAlignment"
    ),
    "DML_TENSOR_DESC": "Type Desc:p",
    "DML_OPERATOR_DESC": "Type Desc:p",
    "DML_GEMM_OPERATOR_DESC": (
        "ATensor:p BTensor:p CTensor:p OutputTensor:p TransA TransB Alpha:f Beta:f "
        "FusedActivation:p"
    ),
    "DML_ACTIVATION_SOFTMAX_OPERATOR_DESC": "InputTensor:p OutputTensor:p",
    "DML_ACTIVATION_RELU_OPERATOR_DESC": "InputTensor:p OutputTensor:p",
    "DML_ACTIVATION_SIGMOID_OPERATOR_DESC": "InputTensor:p OutputTensor:p",
    "DML_ACTIVATION_TANH_OPERATOR_DESC": "InputTensor:p OutputTensor:p",
    "DML_ELEMENT_WISE_ADD_OPERATOR_DESC": "ATensor:p BTensor:p OutputTensor:p",
    "DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC": "ATensor:p BTensor:p OutputTensor:p",
    "DML_CAST_OPERATOR_DESC": "InputTensor:p OutputTensor:p",
    "DML_BINDING_PROPERTIES": (
        "RequiredDescriptorCount TemporaryResourceSize:q PersistentResourceSize:q"
    ),
    "DML_BINDING_TABLE_DESC": (
        "Dispatchable:p CPUDescriptorHandle:q GPUDescriptorHandle:q SizeInDescriptors"
    ),
    "DML_BINDING_DESC": "Type Desc:p",
    "DML_BUFFER_BINDING": "Buffer:p Offset:q SizeInBytes:q",
    "DML_BUFFER_ARRAY_BINDING": "BindingCount Bindings:p",
    "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT": "DataType",
    "DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT": "IsSupported",
}

_TYPES: dict[str, Any] = {
    "": ctypes.c_uint32,
    "p": ctypes.c_void_p,
    "q": ctypes.c_uint64,
    "f": ctypes.c_float,
}


class Record(ctypes.Structure):
    """A structure of DirectML. Pointer fields take structures, arrays or addresses."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        for name, value in fields.items():
            if isinstance(value, ctypes.Structure | ctypes.Array):
                self.__dict__.setdefault("_kept", []).append(value)
                value = ctypes.addressof(value)
            setattr(self, name, value)


def names() -> list[str]:
    """Every structure of the table."""
    return list(_TABLE)


def array_of(records: Sequence[Record]) -> Any:
    """The structures one after another; what they point to stays alive with the array."""
    made = (type(records[0]) * len(records))(*records)
    made.__dict__["_kept"] = list(records)
    return made


def numbers(values: Sequence[int]) -> Any:
    """An array of 32-bit numbers."""
    return (ctypes.c_uint32 * len(values))(*values)


def __getattr__(name: str) -> type[Record]:
    if name not in _TABLE:
        raise AttributeError(f"The table of structures has no {name}.")
    fields = []
    for field in _TABLE[name].split():
        label, _, kind = field.partition(":")
        fields.append((label, _TYPES[kind]))
    made = type(name, (Record,), {"_fields_": fields})
    globals()[name] = made
    return made
