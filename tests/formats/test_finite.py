"""Where the first number is that is none."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import DType, encode_scalars
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat
from crossinfer.formats.finite import first_not_finite
from crossinfer.formats.table_formats import Q8_32


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_scalars(dtype: DType, value: float) -> None:
    numbers = np.resize(np.array([0, -0.0, 1, 60000, -60000, 1e-7], np.float32), 200_000)
    raw = encode_scalars(numbers, dtype)
    assert first_not_finite(raw, dtype) is None
    for index in (0, 70_001, 199_999):
        numbers[index] = value
        assert first_not_finite(encode_scalars(numbers, dtype), dtype) == index
        numbers[index] = 0


@pytest.mark.parametrize("storage", [*BLOCK_FORMATS, Q8_32], ids=lambda storage: storage.label)
def test_blocks(storage: BlockFormat) -> None:
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (1000, storage.block_bytes), dtype=np.uint8)
    halves = [o for o in (storage.scale_offset, storage.min_offset) if o is not None]
    for offset in halves:
        blocks[:, offset : offset + 2] = np.array([65504], np.float16).view(np.uint8)
    assert first_not_finite(blocks, storage) is None
    for offset in halves:
        blocks[700, offset + 1] |= 0x7C
        assert first_not_finite(blocks, storage) == 700 * storage.block_elements
        blocks[700, offset + 1] = 0


def test_integers_and_nothing() -> None:
    assert first_not_finite(np.full(4, -1, np.int32), DType.I32) is None
    assert first_not_finite(b"", BLOCK_FORMATS[0]) is None  # type: ignore[arg-type]
