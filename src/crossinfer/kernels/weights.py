"""How `hlsl/weight.hlsli` learns of a storage type: its defines, and constants of a row."""

from __future__ import annotations

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, BlockFormat, StorageType
from crossinfer.formats.table_formats import Q8_32
from crossinfer.kernels.layout import CHUNK_COLUMNS, ROW_ALIGNMENT, VECTORS, RowLayout, row_bytes
from crossinfer.kernels.shader import define

SCALARS = (DType.F32, DType.F16, DType.BF16)
STORAGES: tuple[StorageType, ...] = (*SCALARS, *BLOCK_FORMATS, Q8_32)
"""What the kernels decode."""
_BLOCKS = len(SCALARS)


def weight_defines(storage: StorageType) -> tuple[tuple[str, str], ...]:
    """The defines that select this storage type."""
    if isinstance(storage, DType):
        return define(
            WEIGHT_KIND=SCALARS.index(storage),
            UNIT_VECTORS=unit_columns(storage) // 4,
            UNIT_WORDS=ROW_ALIGNMENT // 4,
        )
    layout = RowLayout(storage, storage.block_elements)
    return define(
        WEIGHT_KIND=_BLOCKS,
        UNIT_VECTORS=VECTORS,
        UNIT_WORDS=storage.bits,
        CODE_BITS=storage.bits,
        CODE_ZERO=storage.zero,
        GROUPS=layout.groups,
        BLOCK_CHUNKS=layout.chunks,
        HAS_OFFSET=int(storage.min_offset is not None),
        TWO_LEVEL=int(storage.super_scales is not None),
    )


def unit_columns(storage: StorageType) -> int:
    """Columns that a lane takes at once: 16 bytes of scalars, or a chunk."""
    if isinstance(storage, BlockFormat):
        return CHUNK_COLUMNS
    return ROW_ALIGNMENT // storage.block_bytes


def piece_columns(storage: StorageType) -> int:
    """Columns that a lane takes at once beside a single row of x: of a chunk half."""
    return CHUNK_COLUMNS // 2 if isinstance(storage, BlockFormat) else unit_columns(storage)


def row_vectors(columns: int, storage: StorageType) -> int:
    """16-byte words of a row."""
    return row_bytes(columns, storage) // ROW_ALIGNMENT


def row_chunks(columns: int, storage: StorageType) -> int:
    """Chunks of a row; 0 where there are none."""
    return columns // CHUNK_COLUMNS if isinstance(storage, BlockFormat) else 0
