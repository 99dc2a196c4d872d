"""Weights from their file's layout into that of the kernels (see `layout`).

Only whole 32-bit words are moved and masked, so that packing runs at about the memory's speed: a
word of a file's plane is four columns, and so is a word of the layout. Nothing is rounded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import StorageType, unpack_scale_codes
from crossinfer.formats.words import plane_word, spread_bits
from crossinfer.kernels.layout import (
    CHUNK_COLUMNS,
    CodePlane,
    RowLayout,
    row_bytes,
    weight_bytes,
)

__all__ = ["pack_weight", "weight_bytes"]

# Bytes packed at once: what a core's second-level cache holds together with its result.
_PART_BYTES = 1 << 19
_MOST_WORKERS = 16
_PARTS_OF_WORKER = 8
_SIGN = np.uint16(0x8000)


def pack_weight(
    data: memoryview | bytes | Array, shape: Sequence[int], storage: StorageType
) -> Iterator[Array]:
    """The weight in consecutive pieces of uint8, `weight_bytes` in all."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    raw = np.frombuffer(data, dtype=np.uint8).reshape(rows, storage.bytes_for((columns,)))
    step = max(1, _PART_BYTES // raw.shape[1])
    parts = [raw[start : start + step] for start in range(0, rows, step)]
    if isinstance(storage, DType):
        yield from (_pad_rows(part, row_bytes(columns, storage)).reshape(-1) for part in parts)
        return
    layout = RowLayout(storage, columns)
    workers = min(len(parts), _MOST_WORKERS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers, thread_name_prefix="crossinfer-packing") as pool:
        # By batches, or a whole vocabulary would be packed ahead of who takes it.
        ahead = _PARTS_OF_WORKER * workers
        for start in range(0, len(parts), ahead):
            batch = parts[start : start + ahead]
            yield from pool.map(lambda part: _pack_rows(part, layout).reshape(-1), batch)


def _pad_rows(rows: Array, size: int) -> Array:
    if rows.shape[1] == size:
        return rows
    padded = np.zeros((len(rows), size), dtype=np.uint8)
    padded[:, : rows.shape[1]] = rows
    return padded


def _pack_rows(rows: Array, layout: RowLayout) -> Array:
    """uint8 [rows, bytes in the file] to uint8 [rows, layout.row_bytes]."""
    storage = layout.storage
    packed = np.zeros((len(rows), layout.row_bytes), dtype=np.uint8)
    blocks = rows.reshape(len(rows), layout.blocks, storage.block_bytes)
    for number, plane in enumerate(layout.planes):
        start = layout.plane_offset(number)
        region = packed[:, start : start + 4 * plane.bits * layout.chunks].view(np.uint32)
        _pack_plane(region.reshape(len(rows), layout.blocks, -1, plane.bits), blocks, layout, plane)
    start = layout.factor_offset
    factors = packed[:, start : start + 2 * layout.factors * layout.blocks].view(np.uint16)
    factors = factors.reshape(len(rows), layout.blocks, layout.factors)
    factors[..., 0] = _half(blocks, storage.scale_offset)
    if storage.min_offset is not None:
        flip = _SIGN if storage.super_scales else np.uint16(0)
        factors[..., 1] = _half(blocks, storage.min_offset) ^ flip
    if storage.super_scales:
        start = layout.code_offset
        target = packed[:, start : start + layout.codes * layout.chunks]
        target[...] = _scale_codes(blocks, layout)
    return packed


def _half(blocks: Array, offset: int) -> Array:
    """One 16-bit word of each block."""
    return np.ascontiguousarray(blocks[..., offset : offset + 2]).view(np.uint16)[..., 0]


def _scale_codes(blocks: Array, layout: RowLayout) -> Array:
    """uint8 [rows, codes of a row]: chunk by chunk, scale codes before min codes."""
    assert layout.storage.super_scales is not None
    rows, count, size = blocks.shape
    codes = unpack_scale_codes(blocks.reshape(-1, size), layout.storage)
    codes = codes.reshape(rows, count, layout.factors, -1, layout.groups)
    codes[:, :, 0] -= np.uint8(layout.storage.super_scales.zero)  # wraps: two's complement
    return codes.transpose(0, 1, 3, 2, 4).reshape(rows, -1)


def _pack_plane(target: Array, blocks: Array, layout: RowLayout, plane: CodePlane) -> None:
    """Fills `target`, uint32 [rows, blocks, chunks of a block, words]."""
    storage = layout.storage
    source = next(p for p in storage.planes if p.left == plane.left)
    size = source.bits * source.count // 8
    words = np.ascontiguousarray(blocks[..., source.offset : source.offset + size]).view(np.uint32)
    if source.run == 1:
        target[...] = spread_bits(words)[..., None]
        return
    sign_bits = np.uint32(0x01010101 << plane.bits - 1 if storage.signed else 0)
    if source.run == 4 * plane.bits:  # the file's words are the layout's
        target[...] = words.reshape(target.shape) ^ sign_bits
        return

    def file_word(index: int) -> Array:
        part: Array = words[..., index]
        return part

    for chunk in range(target.shape[2]):
        for word in range(plane.bits):
            made = plane_word(file_word, source, plane, CHUNK_COLUMNS * chunk, word)
            target[:, :, chunk, word] = made ^ sign_bits
