"""Weights from their file's layout into tiles of 16 rows (see `layout`), and back.

Only whole 32-bit words are moved and masked, so that packing runs at about the memory's speed: a
word of a file's plane is four columns of one row, and so is a word of a tile. Nothing is rounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from crossinfer.backends.cpu.kernels.layout import (
    CHUNK_COLUMNS,
    HALVES,
    TILE_ROWS,
    VECTORS,
    BlockLayout,
    CodePlane,
    tile_count,
)
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BlockFormat, Plane, StorageType, unpack_scale_codes
from crossinfer.formats.words import plane_word, spread_bits

# Bytes packed at once: what a core's second-level cache holds together with its result.
_CHUNK_BYTES = 1 << 19
_SIGN = 0x8000


def pack(
    data: memoryview | bytes | Array, shape: Sequence[int], storage: StorageType
) -> Iterator[Array]:
    """The packed weight in consecutive pieces of uint8, `layout.packed_size` bytes in all."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    raw = np.frombuffer(data, dtype=np.uint8).reshape(rows, storage.bytes_for((columns,)))
    step = max(1, _CHUNK_BYTES // (raw.shape[1] * TILE_ROWS)) * TILE_ROWS
    for start in range(0, rows, step):
        part = raw[start : start + step]
        missing = -len(part) % TILE_ROWS
        if missing:
            part = np.concatenate([part, np.zeros((missing, raw.shape[1]), dtype=np.uint8)])
        yield _pack_rows(np.ascontiguousarray(part), storage).reshape(-1)


def _pack_rows(rows: Array, storage: StorageType) -> Array:
    """Whole tiles: uint8 [16 · tiles, bytes of a row] to uint8 of any shape."""
    if isinstance(storage, DType):
        elements = rows.view(f"u{storage.block_bytes}")
        elements = elements.reshape(-1, TILE_ROWS, elements.shape[1])
        return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint8)
    layout = BlockLayout(storage)
    blocks = rows.reshape(len(rows) // TILE_ROWS, TILE_ROWS, -1, storage.block_bytes)
    tiles, _, count, _ = blocks.shape
    packed = np.empty((tiles, count, layout.block_bytes), dtype=np.uint8)
    packed[..., :HALVES].view(np.uint16)[...] = _halves(blocks, storage.scale_offset)
    if storage.min_offset is not None:
        flip = np.uint16(_SIGN if layout.two_level else 0)
        offsets = _halves(blocks, storage.min_offset) ^ flip
        packed[..., HALVES : 2 * HALVES].view(np.uint16)[...] = offsets
    chunks = packed[..., layout.header_bytes :].reshape(tiles, count, layout.chunks, -1)
    if layout.two_level:
        _pack_scale_codes(chunks, blocks, layout)
    for plane in layout.planes:
        _pack_plane(chunks, blocks, layout, plane)
    return packed


def _halves(blocks: Array, offset: int) -> Array:
    """One 16-bit word of each block, [tiles, blocks, 16]."""
    words = np.ascontiguousarray(blocks[..., offset : offset + 2]).view(np.uint16)
    return words[..., 0].transpose(0, 2, 1)


def _pack_scale_codes(chunks: Array, blocks: Array, layout: BlockLayout) -> None:
    tiles, _, count, size = blocks.shape
    codes = unpack_scale_codes(blocks.reshape(-1, size), layout.storage)
    codes = codes.reshape(tiles, TILE_ROWS, count, -1, layout.chunks, layout.groups)
    assert layout.storage.super_scales is not None
    codes[:, :, :, 0] -= np.uint8(layout.storage.super_scales.zero)  # wraps: two's complement
    size = codes.shape[3] * layout.groups * TILE_ROWS
    target = chunks[..., :size].reshape(tiles, count, layout.chunks, -1, layout.groups, TILE_ROWS)
    target[...] = codes.transpose(0, 2, 4, 3, 5, 1)


def _pack_plane(chunks: Array, blocks: Array, layout: BlockLayout, plane: CodePlane) -> None:
    source = next(p for p in layout.storage.planes if p.left == plane.left)
    words = _file_words(blocks, source)
    size = 4 * TILE_ROWS * plane.bits
    region = chunks[..., plane.offset : plane.offset + size].view(np.uint32)
    target = region.reshape(*chunks.shape[:3], plane.bits, TILE_ROWS)
    signed = layout.storage.signed and plane.left + plane.bits == layout.storage.bits
    sign_bits = np.uint32(0x01010101 << (plane.bits - 1) if signed else 0)
    for chunk in range(layout.chunks):
        for word in range(plane.bits):
            made = _plane_word(words, source, plane, CHUNK_COLUMNS * chunk, word)
            target[:, :, chunk, word] = made ^ sign_bits if signed else made


def _file_words(blocks: Array, plane: Plane) -> Array:
    """The plane's bytes as words of four columns, uint32 [words, tiles, blocks, 16]."""
    size = plane.bits * plane.count // 8
    words = np.ascontiguousarray(blocks[..., plane.offset : plane.offset + size]).view(np.uint32)
    return np.ascontiguousarray(words.transpose(3, 0, 2, 1))


def _plane_word(words: Array, source: Plane, plane: CodePlane, first: int, word: int) -> Array:
    """One word of a tile's plane, of the chunk that starts at column `first`."""
    if source.run == 1:
        return spread_bits(words[first // CHUNK_COLUMNS])
    return plane_word(words.__getitem__, source, plane, first, word)


@dataclasses.dataclass(frozen=True, eq=False)
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
    blocks = packed.reshape(tile_count(rows), columns // storage.block_elements, layout.block_bytes)
    chunks = blocks[..., layout.header_bytes :].reshape(*blocks.shape[:2], layout.chunks, -1)

    def by_rows(values: Array) -> Array:
        """[tiles, blocks, chunks, n, 16] to [N, blocks · chunks · n]."""
        return values.transpose(0, 4, 1, 2, 3).reshape(-1, math.prod(values.shape[1:4]))[:rows]

    def factors(header: int, codes: int, dtype: type[np.generic]) -> Array:
        half = blocks[..., header : header + HALVES].view(np.float16).astype(np.float32)
        wide = half[:, :, None, None, :]
        if not layout.two_level:
            return by_rows(wide)
        part = chunks[..., codes : codes + TILE_ROWS * layout.groups].view(dtype)
        code = part.reshape(*chunks.shape[:3], layout.groups, TILE_ROWS)
        return by_rows(wide * code.astype(np.float32))

    codes = np.zeros((*chunks.shape[:3], VECTORS, TILE_ROWS), dtype=np.uint32)
    for plane in layout.planes:
        region = chunks[..., plane.offset : plane.offset + 4 * TILE_ROWS * plane.bits]
        words = region.view(np.uint32).reshape(*chunks.shape[:3], plane.bits, TILE_ROWS)
        for vector in range(VECTORS):
            word, shift = plane.position(vector)
            bits = (words[..., word, :] >> np.uint32(shift)) & np.uint32(plane.mask)
            codes[..., vector, :] |= bits << np.uint32(plane.left)
    offsets = None
    if layout.has_offsets:
        offsets = factors(HALVES, layout.offset_code_offset(0), np.uint8)
    return Unpacked(
        np.ascontiguousarray(by_rows(codes)).view(np.uint8),
        factors(0, layout.scale_code_offset(0), np.int8),
        None if offsets is None else -offsets,
    )


def unpack_scalars(packed: Array, shape: Sequence[int], storage: DType) -> Array:
    """The elements of a packed weight as they were stored, uint8 [N, bytes of a row]."""
    rows = math.prod(shape[:-1])
    elements = packed.view(f"u{storage.block_bytes}").reshape(-1, shape[-1], TILE_ROWS)
    by_rows = elements.transpose(0, 2, 1).reshape(-1, shape[-1])[:rows]
    return np.ascontiguousarray(by_rows).view(np.uint8)
