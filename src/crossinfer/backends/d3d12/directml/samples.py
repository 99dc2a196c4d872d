"""An operator of each kind, for whoever tries them on a device."""

from __future__ import annotations

from crossinfer.backends.d3d12.directml.descriptions import (
    Activation,
    Add,
    Cast,
    Description,
    Gemm,
    Multiply,
    Softmax,
)
from crossinfer.backends.d3d12.directml.tensors import Tensor, dense
from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import align_up

_ROW_ELEMENTS = 8
"""Weights' rows are padded to this many elements, and then one more time, so that some are."""


def sample_operators(dtype: DType, M: int, K: int, N: int) -> dict[str, Description]:
    """Operators over M x K and M x N, with padded and repeated rows among their tensors."""
    x, y = dense(dtype, (M, K)), dense(dtype, (M, N))
    weight = dense(dtype, (K, N))
    padded = Tensor(dtype, N, K, align_up(K, _ROW_ELEMENTS) + _ROW_ELEMENTS)
    bias = Tensor(dtype, M, N, 0)
    other = DType.F16 if dtype is DType.F32 else DType.F32
    return {
        "gemm": Gemm(x, weight, y),
        "gemm, b transposed": Gemm(x, padded, y, transpose_b=True),
        "gemm, a transposed": Gemm(dense(dtype, (K, M)), weight, y, transpose_a=True),
        "gemm, bias": Gemm(x, weight, y, bias),
        **{
            f"gemm, c, {activation.name.lower()}": Gemm(x, weight, y, y, activation=activation)
            for activation in Activation
        },
        "softmax": Softmax(x, x),
        "add": Add(y, bias, y),
        "multiply": Multiply(y, y, y),
        "cast": Cast(dense(other, (M, N)), y),
    }
