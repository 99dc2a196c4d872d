"""Finds weights that are NaN or infinite, by reading exponents only.

In block formats every value is a finite code times the block's float16 scales, so that the scales
alone are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import StorageType

# Numbers looked at together: their temporaries stay in the processor's cache.
_CHUNK = 1 << 16

# The type to look at a number as, its bits without the sign, the least of these that is no number.
_SCALARS: dict[DType, tuple[str, int, int]] = {
    DType.F32: ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    DType.F16: ("<u2", 0x7FFF, 0x7C00),
    DType.BF16: ("<u2", 0x7FFF, 0x7F80),
}


def first_not_finite(raw: memoryview | Array, storage: StorageType) -> int | None:
    """The index of the first element, or of the first of its block, that is no finite number."""
    if storage is DType.I32:
        return None
    flat = np.frombuffer(raw, dtype=np.uint8)
    unit = storage.block_elements
    for numbers, bits, least in _views(flat, storage):
        for start in range(0, len(numbers), _CHUNK):
            magnitudes = numbers[start : start + _CHUNK] & bits
            if magnitudes.max() >= least:
                return (start + int(np.argmax(magnitudes >= least))) * unit
    return None


def _views(flat: Array, storage: StorageType) -> Iterator[tuple[Array, np.unsignedinteger, int]]:
    """What decides: all numbers of scalars, each kind of scale of blocks."""
    if isinstance(storage, DType):
        kind, bits, least = _SCALARS[storage]
        numbers = flat.view(kind)
        yield numbers, numbers.dtype.type(bits), least
        return
    _, bits, least = _SCALARS[DType.F16]
    blocks = flat.size // storage.block_bytes
    for offset in (storage.scale_offset, storage.min_offset):
        if offset is not None and blocks:
            scales: Array = np.ndarray(
                (blocks,), "<u2", flat, offset, strides=(storage.block_bytes,)
            )
            yield scales, np.uint16(bits), least
