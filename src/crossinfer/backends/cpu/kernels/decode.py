"""Weights of a tile from memory to registers: codes, scales and offsets of `lanes` rows.

    w = scale · (q - zero) + offset

See `layout` for where they lie. Targets with short vectors take the 16 rows of a tile in parts.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.layout import HALVES, VECTORS, BlockLayout
from crossinfer.core.records import record
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import Type, f16, f32, i8, i32, u8, u32
from crossinfer.jit.value import Value


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
    """A block's own scale and offset, f32 by rows; the offset is None in formats without."""

    scale: Value
    offset: Value | None


def load_header(block: Pointer, layout: BlockLayout, part: RowPart) -> BlockHeader:
    scale = part.load(block, 0, f16).to(f32)
    if not layout.has_offsets:
        return BlockHeader(scale, None)
    return BlockHeader(scale, part.load(block, HALVES, f16).to(f32))


def group_scale(
    chunk: Pointer, header: BlockHeader, layout: BlockLayout, group: int, part: RowPart
) -> Value:
    """The scale of a group of a chunk, f32 by rows. Exact: 11 bits times 8."""
    if not layout.two_level:
        return header.scale
    codes = part.load(chunk, layout.scale_code_offset(group), i8)
    return header.scale * codes.to(i32).to(f32)


def group_offset(
    chunk: Pointer, header: BlockHeader, layout: BlockLayout, group: int, part: RowPart
) -> Value | None:
    """The offset of a group of a chunk, f32 by rows; None in formats without."""
    if header.offset is None or not layout.two_level:
        return header.offset
    codes = part.load(chunk, layout.offset_code_offset(group), u8)
    return header.offset * codes.to(i32).to(f32)


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
            piece = words[plane, word]
            by = shift - plane.left
            piece = piece >> by if by >= 0 else piece << -by
            mask = plane.mask << plane.left
            pieces.append(piece if mask == 0xFFFF_FFFF else piece & mask)
        code = pieces[0]
        for piece in pieces[1:]:
            code = code | piece
        vectors.append(code.bits_as(u8))
    return vectors
