"""Scalar element types and the sizes that follow from them."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    Array = np.ndarray  # nobody but type checkers needs `numpy.typing`, and it loads more modules


class DType(enum.Enum):
    """A scalar element type. The value is (name, bytes per element)."""

    F32 = ("f32", 4)
    F16 = ("f16", 2)
    BF16 = ("bf16", 2)
    I32 = ("i32", 4)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def block_elements(self) -> int:
        """Elements that one storage unit holds; a scalar is a block of one."""
        return 1

    @property
    def block_bytes(self) -> int:
        return self.value[1]

    def bytes_for(self, shape: Sequence[int]) -> int:
        """Bytes that a dense tensor of `shape` takes."""
        return math.prod(shape) * self.block_bytes


_NUMPY: dict[DType, npt.DTypeLike] = {
    DType.F32: np.float32,
    DType.F16: np.float16,
    DType.BF16: np.uint16,
    DType.I32: np.int32,
}


def decode_scalars(raw: memoryview | bytes | Array, dtype: DType) -> Array:
    """The elements of `raw` as float32 (float types) or int32, without loss. Flat."""
    flat = np.frombuffer(raw, dtype=_NUMPY[dtype])
    match dtype:
        case DType.F16:
            return flat.astype(np.float32)
        case DType.BF16:
            return (flat.astype(np.uint32) << 16).view(np.float32)
        case _:
            return flat


def encode_scalars(values: Array, dtype: DType) -> Array:
    """`values` rounded to nearest-even in `dtype`, as an array whose bytes are the storage.

    bfloat16 comes back as uint16, since NumPy has no such type.
    """
    if dtype is not DType.BF16:
        return np.ascontiguousarray(values, dtype=_NUMPY[dtype])
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet_nan = (bits >> 16) | 0x40  # rounding a NaN's payload could carry it into infinity
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)
