"""The test quantizer: what it packs unpacks, and its error stays below the format's step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.dtypes import Array
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat, dequantize, unpack_codes
from crossinfer.testing.quantize import pack_codes, quantize

ALL_FORMATS = pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda s: s.label)


@given(storage=st.sampled_from(BLOCK_FORMATS), seed=st.integers(0, 1 << 32))
def test_codes_come_back(storage: BlockFormat, seed: int) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, 1 << storage.bits, (3, storage.block_elements), dtype=np.uint8)
    blocks = np.zeros((3, storage.block_bytes), dtype=np.uint8)
    stored = codes ^ np.uint8(0x80) if storage.signed else codes
    pack_codes(blocks, stored, storage.planes)
    np.testing.assert_array_equal(unpack_codes(blocks, storage), codes)


@ALL_FORMATS
def test_scale_codes_fill_their_planes_only(storage: BlockFormat) -> None:
    two_levels = storage.super_scales
    if two_levels is None:
        return
    count = storage.groups * (2 if two_levels.has_mins else 1)
    blocks = np.zeros((1, storage.block_bytes), dtype=np.uint8)
    pack_codes(blocks, np.full((1, count), 255, np.uint8), two_levels.planes)
    weights = np.zeros_like(blocks)
    pack_codes(weights, np.full((1, storage.block_elements), 255, np.uint8), storage.planes)
    assert not (blocks & weights).any()


def error_bound(values: Array, storage: BlockFormat) -> Array:
    """The largest error that rounding may cause, [rows, blocks, groups].

    A step of the weights, plus what a scale or min in the middle between two of its own steps
    costs, plus float16's rounding of the factors.
    """
    grouped = values.reshape(len(values), -1, storage.groups, storage.group_elements)
    top = (1 << storage.bits) - 1
    low, high = np.minimum(grouped.min(-1), 0), np.maximum(grouped.max(-1), 0)
    reach: Array = np.maximum(high, -low) if storage.zero else high - low
    step: Array = reach / (storage.zero or top)
    if storage.super_scales is None:
        return step + 2e-3 * reach
    two_levels = storage.super_scales
    scale_codes = two_levels.zero or (1 << max(p.left + p.bits for p in two_levels.planes)) - 1
    coarse = step.max(-1, keepdims=True) / scale_codes * (storage.zero or top)
    coarse_min = (-low).max(-1, keepdims=True) / scale_codes
    bound: Array = step + coarse + coarse_min + 2e-3 * reach.max(-1, keepdims=True)
    return bound


@ALL_FORMATS
@pytest.mark.parametrize("offset", [0.0, 0.7, -3.0])
def test_the_error_is_below_a_step(storage: BlockFormat, offset: float) -> None:
    generator = np.random.default_rng(5)
    spread = generator.uniform(0.1, 1, (20, 1024 // 32, 1))
    values = (generator.normal(size=(20, 32, 32)) * spread + offset).astype(np.float32)
    values = values.reshape(20, 1024)
    raw = quantize(values, storage)
    assert raw.shape == (20, storage.bytes_for((1024,)))
    error = np.abs(dequantize(raw, storage, values.shape) - values)
    grouped = error.reshape(20, -1, storage.groups, storage.group_elements)
    assert (grouped <= error_bound(values, storage)[..., None]).all()


@ALL_FORMATS
def test_every_code_is_used(storage: BlockFormat) -> None:
    values = np.random.default_rng(6).uniform(-1, 1, (64, 1024)).astype(np.float32)
    codes = unpack_codes(quantize(values, storage).reshape(-1, storage.block_bytes), storage)
    assert len(np.unique(codes)) >= (1 << storage.bits) - 1


@ALL_FORMATS
def test_zeros_stay_zeros(storage: BlockFormat) -> None:
    raw = quantize(np.zeros((2, 256), np.float32), storage)
    np.testing.assert_array_equal(dequantize(raw, storage, (2, 256)), 0)


@ALL_FORMATS
def test_rows_do_not_depend_on_each_other(storage: BlockFormat) -> None:
    values = np.random.default_rng(7).normal(size=(2100, 512)).astype(np.float32)
    raw = quantize(values, storage)  # in more than one chunk
    np.testing.assert_array_equal(raw[2050:2060], quantize(values[2050:2060], storage))
