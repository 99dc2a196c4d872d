"""Packed weights against the layout that `kernels.layout` describes, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BlockFormat, StorageType, dequantize
from crossinfer.kernels.layout import RowLayout, row_bytes, weight_bytes
from crossinfer.kernels.packing import pack_weight
from crossinfer.kernels.weights import SCALARS, STORAGES
from crossinfer.verify.data import random_stored

BLOCKS = [storage for storage in STORAGES if isinstance(storage, BlockFormat)]


def packed(stored: Array, shape: tuple[int, int], storage: StorageType) -> Array:
    whole = np.concatenate(list(pack_weight(stored.tobytes(), shape, storage)))
    assert whole.size == weight_bytes(shape, storage)
    return whole.reshape(shape[0], row_bytes(shape[1], storage))


def unpacked(rows: Array, columns: int, storage: BlockFormat) -> Array:
    """The weights, straight from the page that describes the layout."""
    layout = RowLayout(storage, columns)
    result = np.zeros((len(rows), columns), dtype=np.float32)
    factors = rows[:, layout.factor_offset :].copy().view(np.float16).astype(np.float32)
    for chunk in range(layout.chunks):
        block = chunk * 32 // storage.block_elements
        d = factors[:, layout.factors * block]
        offset = factors[:, layout.factors * block + 1] if layout.factors == 2 else np.float32(0)
        codes = rows[:, layout.code_offset + layout.codes * chunk :]
        for column in range(32):
            group, vector, byte = column // storage.group_elements, column // 4, column % 4
            q = np.zeros(len(rows), dtype=np.int32)
            for number, plane in enumerate(layout.planes):
                word, shift = plane.position(vector)
                at = layout.plane_offset(number) + 4 * (plane.bits * chunk + word) + byte
                q |= ((rows[:, at].astype(np.int32) >> shift) % (1 << plane.bits)) << plane.left
            scale, low = d, offset
            if layout.codes:
                scale = d * codes[:, group].view(np.int8)
                if layout.factors == 2:
                    low = offset * codes[:, layout.groups + group]
            result[:, 32 * chunk + column] = scale * (q - storage.zero).astype(np.float32) + low
    return result


@pytest.mark.parametrize("storage", BLOCKS, ids=lambda storage: storage.label)
def test_blocks(storage: BlockFormat) -> None:
    shape = (5, 3 * storage.block_elements)
    stored = random_stored(np.random.default_rng(), storage, shape)
    result = unpacked(packed(stored, shape, storage), shape[1], storage)
    assert np.array_equal(result, dequantize(stored.tobytes(), storage, shape))


@pytest.mark.parametrize("storage", SCALARS, ids=lambda storage: storage.label)
@pytest.mark.parametrize("columns", [32, 33])
def test_scalars_are_kept_and_padded_with_zeros(storage: DType, columns: int) -> None:
    stored = random_stored(np.random.default_rng(), storage, (7, columns))
    rows = packed(stored, (7, columns), storage)
    assert rows.shape[1] % 16 == 0
    used = columns * storage.block_bytes
    assert np.array_equal(rows[:, :used].reshape(-1), np.frombuffer(stored.tobytes(), np.uint8))
    assert not np.any(rows[:, used:])


@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.label)
def test_pieces_do_not_matter(storage: StorageType, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (9, 2 * max(32, storage.block_elements))
    stored = random_stored(np.random.default_rng(), storage, shape)
    whole = packed(stored, shape, storage)
    monkeypatch.setattr("crossinfer.kernels.packing._PART_BYTES", 1)
    assert np.array_equal(packed(stored, shape, storage), whole)
