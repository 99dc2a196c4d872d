"""The numbers and sizes of tiles of 16-bit scalars, by NumPy (see `narrow_layout`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossinfer.backends.cpu.kernels.layout import (
    RECORD_BYTES,
    SCALAR_ROWS,
    tile_bytes,
    tile_count,
)
from crossinfer.backends.cpu.kernels.narrow_layout import (
    COLUMN_BYTES,
    EXCEPTION_BYTES,
    GROUP_COLUMNS,
    GROUP_WORDS,
    PLAIN,
    RECORD,
    START_BYTES,
    pairs_of_words,
)
from crossinfer.core.dtypes import Array, DType, encode_scalars


def tile_sizes(packed: Array, shape: Sequence[int], storage: DType) -> Array:
    """Bytes of each tile of a packed weight and of its record, int64 [tiles]."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tiles, plain = tile_count(rows, storage), tile_bytes(columns, storage)
    records = packed[tiles * plain : tiles * (plain + RECORD_BYTES)].view(RECORD)
    exceptions = records["exceptions"].astype(np.int64)
    narrow = columns * COLUMN_BYTES + exceptions * EXCEPTION_BYTES
    sizes: Array = np.where(exceptions == PLAIN, plain, narrow) + RECORD_BYTES
    return sizes


def unpack_tile(packed: Array, record: Any, columns: int, storage: DType) -> Array:
    """The bits of a tile's numbers as they were stored, uint16 [columns, 32].

    `packed` is the whole weight, `record` the tile's (`narrow_layout.RECORD`).
    """
    start = int(record["start"]) * START_BYTES
    if record["exceptions"] == PLAIN:
        end = start + tile_bytes(columns, storage)
        return packed[start:end].view(np.uint16).reshape(columns, SCALAR_ROWS)
    end = start + columns * COLUMN_BYTES
    words = packed[start:end].view(np.uint32).reshape(-1, GROUP_WORDS, SCALAR_ROWS)
    pairs = np.stack(pairs_of_words(*words.transpose(1, 0, 2)), axis=1)
    values = pairs.view(np.uint16).reshape(-1, GROUP_COLUMNS // 2, SCALAR_ROWS, 2)
    by_column = values.transpose(0, 1, 3, 2).reshape(columns, SCALAR_ROWS)
    numbers = (by_column.astype(np.uint32) << 16).view(np.float32) * record["power"]
    size = int(record["exceptions"]) * EXCEPTION_BYTES
    exceptions = packed[end : end + size].view(np.uint32).reshape(-1, 2)
    numbers.reshape(-1)[exceptions[:, 0]] = exceptions[:, 1].view(np.float32)
    return encode_scalars(numbers, storage).view(np.uint16)
