"""Quantizes float32 rows to any block format, to make test models.

The product never quantizes. Scales are plain: the extreme value (or the range) of a group decides,
with no search for a smaller error. One routine serves all formats, from their description in
`crossinfer.formats.blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.blocks import (
    BlockFormat,
    Plane,
    SuperScales,
    group_scales,
    plane_indices,
)


def pack_codes(blocks: Array, codes: Array, planes: Sequence[Plane]) -> None:
    """Put unsigned `codes` [n, count] into uint8 [n, block_bytes] `blocks`, where `planes` say.

    The bits there must be zero before.
    """
    indices = plane_indices(planes, codes.shape[1])
    for plane, (source, byte, shift) in zip(planes, indices, strict=True):
        bits = (codes[:, source] >> np.uint8(plane.left)) & np.uint8((1 << plane.bits) - 1)
        for amount in np.unique(shift):  # codes with the same shift sit in different bytes
            chosen = shift == amount
            blocks[:, byte[chosen]] |= bits[:, chosen] << amount


def _scale_bits(two_levels: SuperScales) -> int:
    return max(plane.left + plane.bits for plane in two_levels.planes)


def _divide(values: Array, divisor: Array) -> Array:
    """values / divisor, and 0 where the divisor is 0."""
    return np.divide(values, divisor, out=np.zeros_like(values), where=divisor != 0)


def _extreme(values: Array) -> Array:
    """The value of largest magnitude along the last axis, with its sign."""
    high, low = values.max(axis=-1), values.min(axis=-1)
    extreme: Array = np.where(high >= -low, high, low)
    return extreme


def _store_half(blocks: Array, offset: int, values: Array) -> Array:
    """Store float32 [n] `values` as float16 and return what was stored, as float32 [n, 1]."""
    halves = values.astype(np.float16)
    blocks[:, offset : offset + 2] = halves[:, None].view(np.uint8)
    return halves.astype(np.float32)[:, None]


def _store_scales(blocks: Array, scales: Array, mins: Array | None, storage: BlockFormat) -> None:
    """Store the wanted scales and mins, float32 [n, groups], as well as the format can."""
    two_levels = storage.super_scales
    if two_levels is None:
        _store_half(blocks, storage.scale_offset, scales[:, 0])
        if mins is not None and storage.min_offset is not None:
            _store_half(blocks, storage.min_offset, -mins[:, 0])
        return
    top = (1 << _scale_bits(two_levels)) - 1
    if two_levels.zero:
        super_scale = _extreme(scales) / np.float32(-two_levels.zero)
    else:
        super_scale = scales.max(axis=-1) / np.float32(top)
    super_scale = _store_half(blocks, storage.scale_offset, super_scale)
    codes = np.clip(np.rint(_divide(scales, super_scale)) + two_levels.zero, 0, top)
    if mins is not None and storage.min_offset is not None:
        super_min = mins.max(axis=-1) / np.float32(top)
        super_min = _store_half(blocks, storage.min_offset, super_min)
        min_codes = np.clip(np.rint(_divide(mins, super_min)), 0, top)
        codes = np.concatenate([codes, min_codes], axis=1)
    packed = codes.astype(np.uint8)
    if two_levels.signed:
        packed ^= np.uint8(0x80)
    pack_codes(blocks, packed, two_levels.planes)


def quantize_blocks(values: Array, storage: BlockFormat) -> Array:
    """float32 [n, block_elements] to uint8 [n, block_bytes]."""
    blocks = np.zeros((len(values), storage.block_bytes), dtype=np.uint8)
    grouped = values.reshape(len(values), storage.groups, storage.group_elements)
    top = (1 << storage.bits) - 1
    mins = None
    if storage.zero:
        scales = _extreme(grouped) / np.float32(-storage.zero)
    else:
        low = np.minimum(grouped.min(axis=-1), 0)
        scales = (np.maximum(grouped.max(axis=-1), 0) - low) / np.float32(top)
        mins = -low
    _store_scales(blocks, scales, mins, storage)
    scales, mins = group_scales(blocks, storage)  # as they were rounded
    shifted = grouped if mins is None else grouped + mins[:, :, None]
    scaled = _divide(shifted, np.broadcast_to(scales[:, :, None], grouped.shape))
    codes = np.clip(np.rint(scaled) + storage.zero, 0, top).astype(np.uint8)
    if storage.signed:
        codes ^= np.uint8(1 << (storage.bits - 1))
    pack_codes(blocks, codes.reshape(len(values), -1), storage.planes)
    return blocks


# Rows quantized at once: bounds the temporaries to some tens of megabytes.
_CHUNK_ELEMENTS = 1 << 20


def quantize(values: Array, storage: BlockFormat) -> Array:
    """float32 [rows, cols] to uint8 [rows, bytes of a row]; cols is a whole number of blocks.

    A block's bytes depend on its own values only.
    """
    rows, cols = values.shape
    result = np.empty((rows, storage.bytes_for((cols,))), dtype=np.uint8)
    step = max(1, _CHUNK_ELEMENTS // cols)
    for start in range(0, rows, step):
        part = np.ascontiguousarray(values[start : start + step], dtype=np.float32)
        blocks = quantize_blocks(part.reshape(-1, storage.block_elements), storage)
        result[start : start + step] = blocks.reshape(len(part), -1)
    return result
