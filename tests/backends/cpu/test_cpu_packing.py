"""Weights packed into tiles: every code and scale comes back exactly, at little cost in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.cpu.packing_by_numpy import pack_by_numpy

from crossinfer.backends.cpu.kernels import narrow_layout, packing
from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    has_records,
    packed_size,
    records_bytes,
    tile_count,
)
from crossinfer.backends.cpu.kernels.packing import pack, unpack, unpack_scalars
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import (
    BLOCK_FORMATS,
    BlockFormat,
    StorageType,
    group_scales,
    unpack_codes,
)
from crossinfer.formats.table_formats import Q8_32
from crossinfer.verify.data import random_stored

SCALARS = (DType.F32, DType.F16, DType.BF16)


def packed(stored: Array, shape: tuple[int, int], storage: StorageType) -> Array:
    return np.concatenate(list(pack(stored, shape, storage)))


@pytest.mark.parametrize("storage", [*BLOCK_FORMATS, Q8_32], ids=lambda storage: storage.label)
@given(rows=st.integers(1, 50), blocks=st.integers(1, 3), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_codes_and_scales_come_back(
    storage: BlockFormat, rows: int, blocks: int, seed: int
) -> None:
    shape = rows, blocks * storage.block_elements
    stored = random_stored(np.random.default_rng(seed), storage, shape)
    found = unpack(packed(stored, shape, storage), shape, storage)
    scales, mins = group_scales(stored, storage)
    np.testing.assert_array_equal(found.codes, unpack_codes(stored, storage).reshape(shape))
    np.testing.assert_array_equal(found.scales, scales.reshape(rows, -1))
    if mins is None:
        assert found.mins is None
    else:
        assert found.mins is not None
        np.testing.assert_array_equal(found.mins, mins.reshape(rows, -1))


@pytest.mark.parametrize("storage", [*BLOCK_FORMATS, Q8_32, *SCALARS], ids=lambda s: s.label)
@given(rows=st.integers(1, 50), length=st.integers(1, 70), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_native_packer_gives_what_numpy_gives(
    storage: StorageType, rows: int, length: int, seed: int
) -> None:
    columns = length if isinstance(storage, DType) else length % 5 * storage.block_elements
    shape = rows, columns or storage.block_elements
    raw = np.random.default_rng(seed).integers(0, 256, storage.bytes_for(shape), dtype=np.uint8)
    assert packed(raw, shape, storage).tobytes() == pack_by_numpy(raw, shape, storage).tobytes()


@pytest.mark.parametrize("storage", SCALARS, ids=lambda storage: storage.label)
@given(rows=st.integers(1, 50), columns=st.integers(1, 70), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_scalars_come_back(storage: DType, rows: int, columns: int, seed: int) -> None:
    shape = rows, columns
    stored = random_stored(np.random.default_rng(seed), storage, shape)
    found = unpack_scalars(packed(stored, shape, storage), shape, storage)
    assert found.tobytes() == stored.tobytes()


@pytest.mark.parametrize("storage", [*BLOCK_FORMATS, *SCALARS], ids=lambda storage: storage.label)
def test_pieces_make_the_whole(monkeypatch: pytest.MonkeyPatch, storage: StorageType) -> None:
    shape = 16 * 7 + 3, 512
    stored = random_stored(np.random.default_rng(0), storage, shape)
    monkeypatch.setattr(narrow_layout, "_GROUP_BYTES", 1)
    whole = packed(stored, shape, storage)
    monkeypatch.setattr(packing, "_PIECE_BYTES", 1)  # a tile at a time
    pieces = list(pack(stored, shape, storage))
    assert len(pieces) == tile_count(shape[0], storage) + has_records(storage)
    assert np.concatenate(pieces).tobytes() == whole.tobytes()
    assert whole.size == packed_size(shape, storage)


@pytest.mark.parametrize("storage", [*BLOCK_FORMATS, *SCALARS], ids=lambda storage: storage.label)
def test_memory_is_what_the_file_takes(storage: StorageType) -> None:
    shape = 100 * BLOCK_ROWS, 1024
    records = records_bytes(shape[0], storage)  # 12 bytes beside 65,536
    assert packed_size(shape, storage) == storage.bytes_for(shape) + records


def test_what_no_file_has_takes_its_codes_own_bits() -> None:
    """Q8_32 has a byte for each scale code of 6 bits."""
    columns = 1024
    saved = columns // Q8_32.block_elements * Q8_32.groups * 2 // 8
    shape = 100 * BLOCK_ROWS, columns
    assert packed_size(shape, Q8_32) == Q8_32.bytes_for(shape) - shape[0] * saved


@pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda storage: storage.label)
def test_padding_rows_are_zero(storage: BlockFormat) -> None:
    """So that what a kernel computes for them is finite, and as quick as any other row."""
    shape = 17, storage.block_elements
    stored = random_stored(np.random.default_rng(0), storage, shape)
    whole = (32, shape[1])
    found = unpack(packed(stored, shape, storage), whole, storage)
    assert not np.any(found.scales[17:])
