"""What packing must give, by NumPy: written apart from the native packer, as its oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tests.backends.cpu.narrow_by_numpy import pack_halves

from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    CHUNK_COLUMNS,
    HALVES,
    SCALAR_ROWS,
    BlockLayout,
    CodePlane,
    tile_rows,
)
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BlockFormat, Plane, StorageType, unpack_scale_codes
from crossinfer.formats.words import plane_word, spread_bits

_SIGN = 0x8000
_SCALE_CODE_BITS = {"q2_k": 4, "q3_k": 6, "q4_k": 6, "q5_k": 6, "q6_k": 8, "q8_32": 6}


def pack_by_numpy(raw: Array, shape: Sequence[int], storage: StorageType) -> Array:
    """The packed weight, flat uint8."""
    rows = raw.reshape(math.prod(shape[:-1]), storage.bytes_for((shape[-1],)))
    missing = -len(rows) % tile_rows(storage)
    if storage in (DType.F16, DType.BF16):
        return pack_halves(rows.view(np.uint16), storage)
    padded = np.concatenate([rows, np.zeros((missing, rows.shape[1]), dtype=np.uint8)])
    return _pack_rows(np.ascontiguousarray(padded), storage).reshape(-1)


def _pack_rows(rows: Array, storage: StorageType) -> Array:
    """Whole tiles: uint8 [rows, bytes of a row] to uint8 of any shape."""
    if isinstance(storage, DType):
        elements = rows.view(f"u{storage.block_bytes}")
        elements = elements.reshape(-1, SCALAR_ROWS, elements.shape[1])
        return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint8)
    layout = BlockLayout(storage)
    blocks = rows.reshape(len(rows) // BLOCK_ROWS, BLOCK_ROWS, -1, storage.block_bytes)
    tiles, _, count, _ = blocks.shape
    packed = np.empty((tiles, count, layout.block_bytes), dtype=np.uint8)
    packed[..., :HALVES].view(np.uint16)[...] = _halves(blocks, storage.scale_offset)
    if storage.min_offset is not None:
        flip = np.uint16(_SIGN if layout.two_level else 0)
        offsets = _halves(blocks, storage.min_offset) ^ flip
        packed[..., HALVES : 2 * HALVES].view(np.uint16)[...] = offsets
    if layout.two_level:
        codes = _pack_scale_codes(blocks, layout.storage)
        packed[..., layout.header_bytes - codes.shape[2] : layout.header_bytes] = codes
    chunks = packed[..., layout.header_bytes :].reshape(tiles, count, layout.chunks, -1)
    for plane in layout.planes:
        _pack_plane(chunks, blocks, layout, plane)
    return packed


def _halves(blocks: Array, offset: int) -> Array:
    """One 16-bit word of each block, [tiles, blocks, 16]."""
    words = np.ascontiguousarray(blocks[..., offset : offset + 2]).view(np.uint16)
    return words[..., 0].transpose(0, 2, 1)


def _pack_scale_codes(blocks: Array, storage: BlockFormat) -> Array:
    """A block's scale and offset codes, uint8 [tiles, blocks, bytes]."""
    tiles, _, count, size = blocks.shape
    codes = unpack_scale_codes(blocks.reshape(-1, size), storage)
    assert storage.super_scales is not None
    if storage.super_scales.signed:
        codes ^= np.uint8(0x80)  # as the file has them
    codes = codes.reshape(tiles, BLOCK_ROWS, count, -1).transpose(0, 2, 3, 1)
    match _SCALE_CODE_BITS[storage.label]:
        case 4:
            low, high = np.split(codes, 2, axis=2)
            codes = low | (high << 4)
        case 6:
            *three, last = np.split(codes, 4, axis=2)
            above = [(last << 6), (last << 4) & 0xC0, (last << 2) & 0xC0]
            codes = np.concatenate([q | top for q, top in zip(three, above, strict=True)], axis=2)
    return codes.reshape(tiles, count, -1)


def _pack_plane(chunks: Array, blocks: Array, layout: BlockLayout, plane: CodePlane) -> None:
    source = next(p for p in layout.storage.planes if p.left == plane.left)
    words = _file_words(blocks, source)
    size = 4 * BLOCK_ROWS * plane.bits
    region = chunks[..., plane.offset : plane.offset + size].view(np.uint32)
    target = region.reshape(*chunks.shape[:3], plane.bits, BLOCK_ROWS)
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
