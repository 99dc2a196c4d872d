"""Weights of a tile from memory to registers: codes, scales and offsets of `lanes` rows.

    w = scale · (q - zero) + offset

See `layout` for where they lie. Targets with short vectors take the 16 rows of a tile in parts, but
scale codes of 6 bits become bytes for all rows and all chunks of a block at once: 64 codes take one
shift in a long vector, and 16 of one chunk would take as many.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.layout import BLOCK_ROWS, HALVES, VECTORS, BlockLayout
from crossinfer.core.records import record
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import Type, f16, f32, i8, i32, u8, u32
from crossinfer.jit.value import Value

_CACHE_LINE = 64


@record
class RowPart:
    """Rows `first … first + lanes - 1` of a tile; `first` counts from 0 at run time."""

    first: Value
    lanes: int

    def load(self, base: Pointer, offset: int, element: Type) -> Value:
        """These rows' elements of the 16 that start `offset` bytes behind `base`."""
        return (base.cast(u8) + offset).cast(element).vector(self.first, self.lanes)


@record
class BlockHeader:
    """A block's own scale and offset, f32 by rows, and its scale codes."""

    scale: Value
    offset: Value | None
    """None in formats without."""
    codes: Pointer
    """Bytes [scale codes][16], less their zero, or those that two codes share."""


class HeaderReader:
    """Reads the headers of a format's blocks, one at a time: the next one ends the one before."""

    def __init__(self, k: KernelBuilder, layout: BlockLayout) -> None:
        self._layout = layout
        are_bytes = layout.codes_are_bytes or layout.codes_share_bytes
        unpacked = layout.two_level and not are_bytes
        self._bytes = k.scratch(u8, BLOCK_ROWS * layout.scale_codes) if unpacked else None

    def load(self, block: Pointer, part: RowPart) -> BlockHeader:
        layout = self._layout
        scale = part.load(block, 0, f16).to(f32)
        offset = part.load(block, HALVES, f16).to(f32) if layout.has_offsets else None
        codes = block.cast(u8) + layout.scale_codes_offset
        if self._bytes is None:
            if layout.two_level:
                # Chunks take their codes from here one by one: too late for a line to be fetched.
                for line in range(0, layout.header_bytes, _CACHE_LINE):
                    block.cast(u8).prefetch(line)
            return BlockHeader(scale, offset, codes)
        # So many have their bits in the same places of consecutive bytes.
        step = min(4, layout.scale_codes // 4)
        for first in range(0, layout.scale_codes, step):
            self._bytes.store(BLOCK_ROWS * first, self._unpacked(codes, first, step))
        return BlockHeader(scale, offset, self._bytes)

    def _unpacked(self, codes: Pointer, first: int, count: int) -> Value:
        """Codes `first … first + count - 1` of all rows, u8; scale codes less their zero."""
        storage, pieces = self._layout.storage, []
        for part in self._layout.scale_code_parts(first):
            words = (codes + BLOCK_ROWS * part.byte).cast(u32).vector(0, BLOCK_ROWS * count // 4)
            mask = part.mask * 0x01010101 << part.left
            pieces.append(_moved(words, part.shift - part.left, mask))
        made = _joined(pieces).bits_as(u8)
        assert storage.super_scales is not None
        zero = storage.super_scales.zero if first < storage.groups else 0
        return made - zero if zero else made


def group_scale(
    header: BlockHeader, layout: BlockLayout, chunk: Value, group: int, part: RowPart
) -> Value:
    """The scale of a group of a chunk, f32 by rows. Exact: 11 bits times 8."""
    if not layout.two_level:
        return header.scale
    codes = header.codes + chunk * (BLOCK_ROWS * layout.groups)
    if layout.codes_share_bytes:
        code = part.load(codes, BLOCK_ROWS * group, u8).to(i32) & 0xF
    else:
        code = part.load(codes, BLOCK_ROWS * group, i8).to(i32)
    return header.scale * code.to(f32)


def group_offset(
    header: BlockHeader, layout: BlockLayout, chunk: Value, group: int, part: RowPart
) -> Value | None:
    """The offset of a group of a chunk, f32 by rows; None in formats without."""
    if header.offset is None or not layout.two_level:
        return header.offset
    codes = header.codes + chunk * (BLOCK_ROWS * layout.groups)
    if layout.codes_share_bytes:
        code = part.load(codes, BLOCK_ROWS * group, u8).to(i32) >> 4
    else:
        code = part.load(codes, BLOCK_ROWS * (layout.storage.groups + group), u8).to(i32)
    return header.offset * code.to(f32)


def load_codes(chunk: Pointer, layout: BlockLayout, part: RowPart) -> list[Value]:
    """The codes of a chunk: eight vectors of u8, with four columns of each row in each."""
    words = {
        (plane, word): part.load(chunk, plane.offset + 64 * word, u32)
        for plane in layout.planes
        for word in range(plane.bits)
    }
    vectors = []
    for vector in range(VECTORS):
        pieces = []
        for plane in layout.planes:
            word, shift = plane.position(vector)
            mask = plane.mask << plane.left
            pieces.append(_moved(words[plane, word], shift - plane.left, mask))
        vectors.append(_joined(pieces).bits_as(u8))
    return vectors


def _moved(words: Value, by: int, mask: int) -> Value:
    """Shifted right, or left if `by` is negative; then the bits of `mask`."""
    moved = words >> by if by >= 0 else words << -by
    return moved if mask == 0xFFFF_FFFF else moved & mask


def _joined(pieces: Sequence[Value]) -> Value:
    code = pieces[0]
    for piece in pieces[1:]:
        code = code | piece
    return code
