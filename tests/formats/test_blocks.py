"""The block formats against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat, dequantize, unpack_codes

ALL_FORMATS = pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda s: s.label)


def random_blocks(storage: BlockFormat, count: int, seed: int = 0) -> Array:
    """Blocks of random bits, but with finite scales."""
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (count, storage.block_bytes), dtype=np.uint8)
    for offset in (storage.scale_offset, storage.min_offset):
        if offset is not None:
            halves = generator.normal(size=(count, 1)).astype(np.float16)
            raw[:, offset : offset + 2] = halves.view(np.uint8)
    return raw


@ALL_FORMATS
def test_random_bits_dequantize_as_ggml_does(storage: BlockFormat) -> None:
    raw = random_blocks(storage, 300)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[storage.label.upper()])
    actual = dequantize(raw, storage, (300, storage.block_elements))
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, expected)


@ALL_FORMATS
def test_sizes_are_those_of_ggml(storage: BlockFormat) -> None:
    kind = gguf.GGMLQuantizationType[storage.label.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == (storage.block_elements, storage.block_bytes)
    with pytest.raises(ValueError, match="multiple"):
        storage.bytes_for((storage.block_elements, storage.block_elements // 2))


@ALL_FORMATS
def test_codes_have_the_bits_of_the_format(storage: BlockFormat) -> None:
    codes = unpack_codes(random_blocks(storage, 200), storage)
    assert codes.min() == 0
    assert codes.max() == (1 << storage.bits) - 1


def test_a_wrong_number_of_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 32 bytes"):
        dequantize(bytes(31), DType.F32, (2, 4))


def test_large_tensors_are_dequantized_in_chunks() -> None:
    storage = BLOCK_FORMATS[0]
    raw = np.tile(random_blocks(storage, 16), (4096, 1))
    values = dequantize(raw, storage, (4096, 16 * 32))
    np.testing.assert_array_equal(values, np.broadcast_to(values[0], values.shape))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_scalars_convert_without_loss(dtype: DType) -> None:
    values = np.array([[0.0, -1.5, 96.5], [-0.0, np.inf, 2.0**-14]], dtype=np.float32)
    stored = encode_scalars(values, dtype)
    np.testing.assert_array_equal(dequantize(stored.tobytes(), dtype, (2, 3)), values)
