"""Weights from their file's layout into tiles of rows (see `layout`), and back."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from crossinfer.backends.cpu.kernel import CpuKernel
from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    HALVES,
    RECORD_BYTES,
    SCALAR_ROWS,
    VECTORS,
    BlockLayout,
    has_records,
    records_bytes,
    tile_bytes,
    tile_count,
    tile_rows,
)
from crossinfer.backends.cpu.kernels.narrow_layout import RECORD, group_tiles
from crossinfer.backends.cpu.kernels.unpack_narrow import unpack_tile
from crossinfer.backends.cpu.library import generator, kernel_library
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.records import entity
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import BlockFormat, StorageType
from crossinfer.jit.target import host_target

_build_pack = generator("pack_tiles", "build_pack")
_build_pack_narrow = generator("pack_narrow", "build_pack_narrow")
# Bytes packed at once: what a core's second-level cache holds together with its result.
_PIECE_BYTES = 1 << 19


def pack(
    data: memoryview | bytes | Array, shape: Sequence[int], storage: StorageType
) -> Iterator[Array]:
    """The packed weight in consecutive pieces of uint8, `layout.packed_size` bytes in all.

    Raises KernelUnsupported.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    row_bytes = storage.bytes_for((columns,))
    raw = np.frombuffer(data, dtype=np.uint8).reshape(rows, row_bytes)
    step = piece_rows(columns, storage, _PIECE_BYTES)
    run = _packer(storage)
    bad = np.zeros(1, dtype=np.uint32)  # whoever packs in this way has looked already
    records = np.zeros(records_bytes(rows, storage), dtype=np.uint8)
    for start in range(0, rows, step):
        part, tile = raw[start : start + step], start // tile_rows(storage)
        packed = np.zeros(
            tile_count(len(part), storage) * tile_bytes(columns, storage), dtype=np.uint8
        )
        constants = struct.pack("<4i", *pack_constants(len(part), columns, storage, tile))
        of_tile = records.ctypes.data + tile * RECORD_BYTES
        views = (part.ctypes.data, packed.ctypes.data, bad.ctypes.data, of_tile)
        addresses = struct.pack("<8Q", *views, *[0] * 4)
        run(addresses + constants, 0, pack_workgroups(len(part), columns, storage), 0)
        yield packed
    if records.size:
        yield records


def piece_rows(columns: int, storage: StorageType, piece_bytes: int) -> int:
    """Rows of about so many bytes in a file, which pack apart from those around them."""
    rows = tile_rows(storage) * (group_tiles(columns) if has_records(storage) else 1)
    return max(1, piece_bytes // (storage.bytes_for((columns,)) * rows)) * rows


def pack_workgroups(rows: int, columns: int, storage: StorageType) -> int:
    """Of a dispatch of the kernel over so many rows."""
    tiles = tile_count(rows, storage)
    return ceil_div(tiles, group_tiles(columns)) if has_records(storage) else tiles


def pack_constants(
    rows: int, columns: int, storage: StorageType, tile: int
) -> tuple[int, int, int, int]:
    """The kernel's constants for rows that start with a weight's tile `tile`.

    The last two are for storages with records.
    """
    return rows, row_length(columns, storage), tile, group_tiles(columns)


def row_length(columns: int, storage: StorageType) -> int:
    """The kernel's length of a row: in blocks, or in scalars."""
    return columns // storage.block_elements if isinstance(storage, BlockFormat) else columns


@functools.cache
def _packer(storage: StorageType) -> Callable[[bytes, int, int, int], None]:
    """The kernel as a function; the interpreter lock is free meanwhile."""
    types = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32
    return ctypes.CFUNCTYPE(None, *types)(pack_kernel(storage).address)


def pack_kernel(storage: StorageType) -> CpuKernel:
    """The kernel for this machine (see `pack_tiles`). Raises KernelUnsupported."""
    symbol = f"pack_{storage.label}"
    build = _build_pack_narrow if has_records(storage) else _build_pack
    kernel = kernel_library(host_target()).get(
        symbol.replace("_", ".", 1),
        symbol,
        lambda target: build(symbol, target, storage),
    )
    assert isinstance(kernel.handle, CpuKernel)
    return kernel.handle


@entity
class Unpacked:
    """A packed weight's contents, by rows: w = scale · (code - zero) - min in each group."""

    codes: Array
    """uint8 [N, K]."""
    scales: Array
    """float32 [N, K / group_elements]."""
    mins: Array | None


def unpack(packed: Array, shape: Sequence[int], storage: BlockFormat) -> Unpacked:
    """The exact codes and scales of a packed weight, for tests and export."""
    layout = BlockLayout(storage)
    rows, columns = math.prod(shape[:-1]), shape[-1]
    blocks = packed.reshape(
        tile_count(rows, storage), columns // storage.block_elements, layout.block_bytes
    )
    chunks = blocks[..., layout.header_bytes :].reshape(*blocks.shape[:2], layout.chunks, -1)

    def by_rows(values: Array) -> Array:
        """[tiles, blocks, chunks, n, 16] to [N, blocks · chunks · n]."""
        return values.transpose(0, 4, 1, 2, 3).reshape(-1, math.prod(values.shape[1:4]))[:rows]

    def factors(header: int, first: int, zero: int) -> Array:
        half = blocks[..., header : header + HALVES].view(np.float16).astype(np.float32)
        wide = half[:, :, None, None, :]
        if not layout.two_level:
            return by_rows(wide)
        numbers = range(first, first + storage.groups)
        codes = np.stack([_scale_code(blocks, layout, number) for number in numbers], axis=2)
        return by_rows(wide * (codes - np.float32(zero))[:, :, None])

    codes = np.zeros((*chunks.shape[:3], VECTORS, BLOCK_ROWS), dtype=np.uint32)
    for plane in layout.planes:
        region = chunks[..., plane.offset : plane.offset + 4 * BLOCK_ROWS * plane.bits]
        words = region.view(np.uint32).reshape(*chunks.shape[:3], plane.bits, BLOCK_ROWS)
        for vector in range(VECTORS):
            word, shift = plane.position(vector)
            bits = (words[..., word, :] >> np.uint32(shift)) & np.uint32(plane.mask)
            codes[..., vector, :] |= bits << np.uint32(plane.left)
    two_levels = storage.super_scales
    return Unpacked(
        np.ascontiguousarray(by_rows(codes)).view(np.uint8),
        factors(0, 0, 0 if two_levels is None else two_levels.zero),
        -factors(HALVES, storage.groups, 0) if layout.has_offsets else None,
    )


def _scale_code(blocks: Array, layout: BlockLayout, number: int) -> Array:
    """One of the scale and offset codes of each row, unsigned, [tiles, blocks, 16]."""
    code = np.zeros((*blocks.shape[:2], BLOCK_ROWS), dtype=np.uint8)
    for part in layout.scale_code_parts(number):
        start = layout.scale_codes_offset + BLOCK_ROWS * part.byte
        bits = (blocks[..., start : start + BLOCK_ROWS] >> part.shift) & part.mask
        code |= (bits << part.left).astype(np.uint8)
    two_levels = layout.storage.super_scales
    return code ^ np.uint8(0x80) if two_levels is not None and two_levels.signed else code


def unpack_scalars(packed: Array, shape: Sequence[int], storage: DType) -> Array:
    """The elements of a packed weight as they were stored, uint8 [N, bytes of a row]."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tiles, size = tile_count(rows, storage), tile_bytes(columns, storage)
    if has_records(storage):
        records = packed[tiles * size :].view(RECORD)[:tiles]
        elements = np.stack([unpack_tile(packed, record, columns, storage) for record in records])
    else:
        elements = packed.view(f"u{storage.block_bytes}").reshape(-1, columns, SCALAR_ROWS)
    by_rows = elements.transpose(0, 2, 1).reshape(-1, columns)[:rows]
    return np.ascontiguousarray(by_rows).view(np.uint8)
