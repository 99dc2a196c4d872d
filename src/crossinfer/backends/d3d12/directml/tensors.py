"""Tensors as DirectML sees them: a data type, four sizes, strides in elements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from crossinfer.backends.d3d12.directml import structures as dml
from crossinfer.backends.d3d12.directml.constants import (
    SIZE_ALIGNMENT,
    TENSOR_FLAG_NONE,
    TENSOR_TYPE_BUFFER,
    DataType,
)
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse
from crossinfer.core.shapes import align_up
from crossinfer.hal.buffer import VIEW_ALIGNMENT

DIMENSIONS = 4
"""What every operator takes at every feature level."""
_MOST_BYTES = 1 << 32
"""Sizes and strides are 32-bit numbers, and a view of a buffer shows no more."""

DATA_TYPES = {DType.F32: DataType.FLOAT32, DType.F16: DataType.FLOAT16}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """`rows` rows of `columns` elements, `row_stride` elements apart; 0 repeats one row.

    Raises InvalidUse for types and sizes that DirectML has no description for.
    """

    dtype: DType
    rows: int
    columns: int
    row_stride: int

    def __post_init__(self) -> None:
        if self.dtype not in DATA_TYPES:
            raise InvalidUse(f"DirectML operators take f32 and f16 here, not {self.dtype.label}.")
        if self.rows < 1 or self.columns < 1 or 0 < self.row_stride < self.columns:
            raise InvalidUse(
                f"A tensor of {self.rows} rows of {self.columns} elements, {self.row_stride} "
                "apart, cannot be described to DirectML."
            )
        if self.size_in_bytes >= _MOST_BYTES:
            raise InvalidUse(
                f"A tensor of {self.rows} rows of {self.columns} elements is too large for "
                "DirectML."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1, 1, self.rows, self.columns)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the outer two dimensions, which have one element, any stride would do."""
        return (0, 0, self.row_stride, 1)

    @property
    def size_in_bytes(self) -> int:
        """What must be bound at least: up to the last element, in whole 32-bit words."""
        return align_up((self._last + 1) * self.dtype.block_bytes, SIZE_ALIGNMENT)

    @property
    def _last(self) -> int:
        """The index of the last element."""
        return (self.rows - 1) * self.row_stride + self.columns - 1

    def native(self) -> Any:
        """The DML_TENSOR_DESC."""
        description = dml.DML_BUFFER_TENSOR_DESC(
            DataType=DATA_TYPES[self.dtype],
            Flags=TENSOR_FLAG_NONE,
            DimensionCount=DIMENSIONS,
            Sizes=dml.numbers(self.sizes),
            Strides=dml.numbers(self.strides),
            TotalTensorSizeInBytes=self.size_in_bytes,
            GuaranteedBaseOffsetAlignment=VIEW_ALIGNMENT,
        )
        return dml.DML_TENSOR_DESC(Type=TENSOR_TYPE_BUFFER, Desc=description)


def dense(dtype: DType, shape: Sequence[int]) -> Tensor:
    """A tensor without gaps; all dimensions but the last are rows."""
    return Tensor(dtype, math.prod(shape[:-1]), shape[-1], shape[-1])
