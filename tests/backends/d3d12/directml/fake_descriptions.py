"""Operator descriptions as a DirectML of our own reads and judges them.

Written from the header's layouts and the documented constraints, without the code under test.
"""

from __future__ import annotations

import ctypes
import dataclasses
import struct

from tests.backends.d3d12.directml.layouts import constant, read

_ELEMENT_BYTES = {
    constant("TENSOR_DATA_TYPE_FLOAT32"): 4,
    constant("TENSOR_DATA_TYPE_FLOAT16"): 2,
}
_GEMM = constant("OPERATOR_GEMM")
_CAST = constant("OPERATOR_CAST")
_TWO_INPUTS = {
    constant("OPERATOR_ELEMENT_WISE_ADD"): "DML_ELEMENT_WISE_ADD_OPERATOR_DESC",
    constant("OPERATOR_ELEMENT_WISE_MULTIPLY"): "DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC",
}
_ONE_INPUT = {
    constant("OPERATOR_ACTIVATION_SOFTMAX"): "DML_ACTIVATION_SOFTMAX_OPERATOR_DESC",
    _CAST: "DML_CAST_OPERATOR_DESC",
}
_ACTIVATIONS = {
    constant(f"OPERATOR_ACTIVATION_{name}"): f"DML_ACTIVATION_{name}_OPERATOR_DESC"
    for name in ("RELU", "SIGMOID", "TANH")
}


@dataclasses.dataclass(frozen=True)
class SeenTensor:
    """A tensor as it was described."""

    data_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    total_bytes: int
    alignment: int


@dataclasses.dataclass(frozen=True)
class SeenOperator:
    """An operator as it was described; inputs in the order of binding, None where left out."""

    kind: int
    inputs: tuple[SeenTensor | None, ...]
    output: SeenTensor
    transposed: tuple[bool, bool] = (False, False)
    activation: int | None = None


def seen_operator(address: int) -> SeenOperator:
    """The operator behind a DML_OPERATOR_DESC. Raises ValueError for one that is not allowed."""
    described = read(address, "DML_OPERATOR_DESC")
    kind, place = described["Type"], described["Desc"]
    if kind == _GEMM:
        return _gemm(read(place, "DML_GEMM_OPERATOR_DESC"))
    if kind in _TWO_INPUTS:
        fields = read(place, _TWO_INPUTS[kind])
        inputs: tuple[SeenTensor, ...] = (_tensor(fields["ATensor"]), _tensor(fields["BTensor"]))
    else:
        fields = read(place, _ONE_INPUT[kind])
        inputs = (_tensor(fields["InputTensor"]),)
    output = _tensor(fields["OutputTensor"])
    for tensor in inputs:
        _need(tensor.sizes == output.sizes, "an input has other sizes than the output")
        same = tensor.data_type == output.data_type
        _need(same or kind == _CAST, "an input has another type than the output")
    return SeenOperator(kind, inputs, output)


def _gemm(fields: dict[str, int]) -> SeenOperator:
    a, b = _tensor(fields["ATensor"]), _tensor(fields["BTensor"])
    c = _tensor(fields["CTensor"]) if fields["CTensor"] else None
    output = _tensor(fields["OutputTensor"])
    transposed = bool(fields["TransA"]), bool(fields["TransB"])
    m, k = a.sizes[2:][::-1] if transposed[0] else a.sizes[2:]
    k_of_b, n = b.sizes[2:][::-1] if transposed[1] else b.sizes[2:]
    _need(k == k_of_b, "A and B do not fit")
    _need(output.sizes == (1, 1, m, n), "the output has the wrong sizes")
    _need(c is None or c.sizes == output.sizes, "C has the wrong sizes")
    types = {tensor.data_type for tensor in (a, b, c, output) if tensor is not None}
    _need(len(types) == 1, "the tensors have several types")
    _need(_float(fields["Alpha"]) == 1, "alpha is not 1")
    _need(_float(fields["Beta"]) == (0 if c is None else 1), "beta is wrong")
    activation = None
    if fields["FusedActivation"]:
        fused = read(fields["FusedActivation"], "DML_OPERATOR_DESC")
        activation = fused["Type"]
        tensors = read(fused["Desc"], _ACTIVATIONS[activation])
        _need(not any(tensors.values()), "a fused activation has tensors")
    return SeenOperator(_GEMM, (a, b, c), output, transposed, activation)


def _tensor(address: int) -> SeenTensor:
    described = read(address, "DML_TENSOR_DESC")
    _need(described["Type"] == constant("TENSOR_TYPE_BUFFER"), "a tensor is no buffer")
    fields = read(described["Desc"], "DML_BUFFER_TENSOR_DESC")
    count = fields["DimensionCount"]
    _need(count == 4, "a tensor has not four dimensions")
    _need(fields["Flags"] == constant("TENSOR_FLAG_NONE"), "a tensor is DirectML's own")
    sizes = tuple((ctypes.c_uint32 * count).from_address(fields["Sizes"]))
    strides = tuple((ctypes.c_uint32 * count).from_address(fields["Strides"]))
    _need(all(sizes), "a tensor is empty")
    element = _ELEMENT_BYTES[fields["DataType"]]
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    total = fields["TotalTensorSizeInBytes"]
    _need(total % 4 == 0, "a tensor's size is no multiple of four bytes")
    _need(total >= (last + 1) * element, "a tensor's size is too small")
    alignment = fields["GuaranteedBaseOffsetAlignment"]
    _need(alignment & (alignment - 1) == 0, "an alignment is no power of two")
    return SeenTensor(fields["DataType"], sizes, strides, total, alignment)


def _float(bits: int) -> float:
    value: float = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return value


def _need(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(complaint)
