"""Kernels of the reference device: arrays over a dispatch's views, and the op's meaning on them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Op
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.kernel import Dispatch, Operand

_NUMPY = {DType.F32: np.float32, DType.F16: np.float16, DType.I32: np.int32}


@dataclasses.dataclass(frozen=True)
class ReferenceKernel:
    """An op and, in the order of the dispatch's bindings, its operands' names and types."""

    op: Op
    operands: tuple[tuple[str, Operand], ...]


def weight_storage(dtype: StorageType, role: Role) -> StorageType:
    """How a tensor is kept: weights as float32, whatever their storage in the file."""
    return DType.F32 if role is Role.WEIGHT else dtype


def run_dispatch(dispatch: Dispatch, views: Sequence[Array]) -> None:
    """Compute the op on uint8 `views`, one a binding, and round its outputs into them."""
    kernel = dispatch.kernel.handle
    assert isinstance(kernel, ReferenceKernel)
    arrays = {
        name: _array(view, operand)
        for (name, operand), view in zip(kernel.operands, views, strict=True)
    }
    inputs = {
        name: arrays[name]
        for (name, _), binding in zip(kernel.operands, dispatch.bindings, strict=True)
        if Access.READ in binding.access
    }
    with np.errstate(all="ignore"):  # infinities and NaN are results here, not accidents
        for name, values in kernel.op.compute(inputs).items():
            arrays[name][...] = values


def _array(view: Array, operand: Operand) -> Array:
    storage = weight_storage(operand.storage, operand.role)
    assert isinstance(storage, DType)
    dtype = np.dtype(_NUMPY[storage])
    size = math.prod(operand.shape) * dtype.itemsize
    return view[:size].view(dtype).reshape(operand.shape)
