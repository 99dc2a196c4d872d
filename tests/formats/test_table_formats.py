"""The formats that are converted at load, against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import Q8_0, dequantize
from crossinfer.formats.table_formats import TABLE_FORMATS, TableFormat, as_blocks, convert

BY_LABEL = {storage.label: storage for storage in TABLE_FORMATS}
ALL = pytest.mark.parametrize("storage", TABLE_FORMATS, ids=lambda storage: storage.label)

# Where the float16 scale of a block is; MXFP4 and NVFP4 have scales of eight bits.
_SCALE = {"tq1_0": 52, "tq2_0": 64, "mxfp4": None, "nvfp4": None, "iq1_m": None}


def random_blocks(storage: TableFormat, count: int, seed: int = 0) -> Array:
    """Blocks of random bits, but with finite scales."""
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (count, storage.block_bytes), dtype=np.uint8)
    offset = _SCALE.get(storage.label, 0)
    if offset is not None:
        halves = generator.normal(size=(count, 1)).astype(np.float16)
        raw[:, offset : offset + 2] = halves.view(np.uint8)
    if storage.label == "iq1_m":
        raw[:, 55] &= 0x3F  # the scale's highest bits: sign and exponent
    if storage.label == "mxfp4":
        raw[:, 0] = generator.integers(104, 147, count)
    return raw


def loaded(raw: Array, storage: TableFormat) -> tuple[Array, DType | object]:
    data = raw.data.cast("B")
    target = storage.choose(as_blocks(data, storage))
    shape = (len(raw), storage.block_elements)
    return dequantize(convert(data, storage, target), target, shape), target


def expected(raw: Array, storage: TableFormat) -> Array:
    return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[storage.label.upper()])


@ALL
def test_random_bits_mean_what_they_mean_to_ggml(storage: TableFormat) -> None:
    raw = random_blocks(storage, 400)
    actual, _ = loaded(raw, storage)
    values = expected(raw, storage)
    np.testing.assert_array_equal(
        actual, values if storage.exact else values.astype(np.float16).astype(np.float32)
    )


@ALL
def test_sizes_are_those_of_ggml(storage: TableFormat) -> None:
    kind = gguf.GGMLQuantizationType[storage.label.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == (storage.block_elements, storage.block_bytes)
    assert storage.bytes_for((3, storage.block_elements)) == 3 * storage.block_bytes


def test_every_type_that_the_gguf_package_dequantizes_is_here() -> None:
    ours = {storage.label.upper() for storage in TABLE_FORMATS}
    affine = {"BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
              "Q6_K"}  # fmt: skip
    assert ours >= {kind.name for kind in gguf.quants._type_traits} - affine


@pytest.mark.parametrize("exponent", range(252))
def test_every_mxfp4_scale_is_exact(exponent: int) -> None:
    """Powers of two that float16 cannot hold make the tensor bfloat16, not another value."""
    storage = BY_LABEL["mxfp4"]
    raw = random_blocks(storage, 40, exponent)
    raw[3, 0] = exponent
    actual, target = loaded(raw, storage)
    assert target is (Q8_0 if 104 <= exponent <= 146 else DType.BF16)
    np.testing.assert_array_equal(actual, expected(raw, storage))


def test_blocks_of_zeros_leave_mxfp4_narrow() -> None:
    storage = BY_LABEL["mxfp4"]
    raw = random_blocks(storage, 4)
    for block, exponent in enumerate((0, 254)):
        raw[block] = 0
        raw[block, 0] = exponent
    actual, target = loaded(raw, storage)
    assert target is Q8_0
    np.testing.assert_array_equal(actual, expected(raw, storage))


def test_every_nvfp4_scale_is_exact() -> None:
    storage = BY_LABEL["nvfp4"]
    raw = random_blocks(storage, 32)
    raw[:, :4] = np.arange(128, dtype=np.uint8).reshape(32, 4)
    actual, _ = loaded(raw, storage)
    np.testing.assert_array_equal(actual, expected(raw, storage))


def test_large_tensors_are_converted_in_chunks() -> None:
    storage = BY_LABEL["iq4_xs"]
    raw = np.tile(random_blocks(storage, 16), (1024, 1))
    values, _ = loaded(raw, storage)
    np.testing.assert_array_equal(values, np.tile(values[:16], (1024, 1)))
