"""Where the numbers of a weight lie in this backend's memory: tiles of 16 or 32 rows.

A vector lane is a row, so that a product needs no sums across lanes. The rows of a matrix are
padded to whole tiles with zeros; its tiles follow one another, and in a tile the columns ascend.
Every kernel that reads a weight (linear, embed) reads this one layout.

Scalars, [tile][column][32 rows]: two vectors a column, so that a product with one token has two
sums to add to in turns; with one, the additions take longer than reading does. Tiles of 16-bit
scalars may also lie in 12 bits a number, and have records behind them (see `narrow_layout`).

Blocks, [tile][block] of 16 rows, each block of `block_bytes`:

    scale        f16 [16]                 d
    offset       f16 [16]                 m, or -dmin; only in formats with mins
    scale codes  u8 [bytes][16]           only in two-level formats
    chunks       one for every 32 columns, each of `chunk_bytes`:
        planes   u32 [words][16]          one after another, low bits first

so that    w = scale · (scale code - its zero) · (q - zero) + offset · offset code.

All codes keep their own width, so that a block takes what it takes in the file.

The codes q are cut into planes of 8, 4, 2 and 1 bits (6 = 4 + 2), at their natural size. A plane of
p bits has p words for 32 columns. Four bytes of one row make a word: columns 4v … 4v + 3 are the
bytes of word v mod p, at bit p · (v div p) of each byte.

The scale codes are those of all the block's groups, as the file has them, and behind them the
offset codes. Codes of 8 bits are bytes. Of 4 bits, the codes of the first half are the low bits of
bytes, and those of the second half the high bits of the same bytes. Of 6 bits, the codes of the
first three quarters are the low bits of bytes, and a code of the last quarter is what three of
these bytes, one of each quarter, have above, its low bits first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeGuard

from crossinfer.core.dtypes import DType
from crossinfer.core.records import record
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import BlockFormat, StorageType

BLOCK_ROWS = 16
"""Of a tile of blocks."""
SCALAR_ROWS = 32
"""Of a tile of scalars."""
RECORD_BYTES = 12
"""Of what there is to know about a tile of 16-bit scalars."""
CHUNK_COLUMNS = 32
VECTORS = CHUNK_COLUMNS // 4
"""Code vectors in a chunk: four columns in each."""
HALVES = 2 * BLOCK_ROWS
"""Bytes of one f16 for each row of a block."""


@record
class CodePlane:
    """`bits` bits of each code of a chunk, which enter the code from its bit `left` up."""

    bits: int
    left: int
    offset: int
    """Bytes from the start of the chunk."""

    def position(self, vector: int) -> tuple[int, int]:
        """(word, shift within each byte) of a code vector."""
        return vector % self.bits, self.bits * (vector // self.bits)

    @property
    def mask(self) -> int:
        """The plane's bits at shift 0, in each byte of a word."""
        return ((1 << self.bits) - 1) * 0x01010101


@record
class ScaleCodePart:
    """`bits` bits of a byte from its bit `shift` up, which enter a code from its bit `left` up."""

    byte: int
    bits: int
    shift: int = 0
    left: int = 0

    @property
    def mask(self) -> int:
        """The bits at shift 0."""
        return (1 << self.bits) - 1


@record
class BlockLayout:
    """Offsets and sizes, in bytes, of a block of 16 rows."""

    storage: BlockFormat

    @property
    def two_level(self) -> bool:
        return self.storage.super_scales is not None

    @property
    def has_offsets(self) -> bool:
        return self.storage.min_offset is not None

    @property
    def groups(self) -> int:
        """Scale groups in a chunk."""
        return CHUNK_COLUMNS // self.storage.group_elements

    @property
    def chunks(self) -> int:
        """Chunks in a block."""
        return self.storage.block_elements // CHUNK_COLUMNS

    @property
    def scale_codes(self) -> int:
        """Scale codes of a block, offset codes included."""
        return 0 if not self.two_level else self.storage.groups * (2 if self.has_offsets else 1)

    @functools.cached_property
    def scale_code_bits(self) -> int:
        two_levels = self.storage.super_scales
        return max(p.left + p.bits for p in two_levels.planes) if two_levels is not None else 0

    @property
    def codes_are_bytes(self) -> bool:
        """Whether scale codes are signed bytes, so that their zero is 0 there."""
        two_levels = self.storage.super_scales
        return two_levels is not None and two_levels.signed

    @property
    def codes_share_bytes(self) -> bool:
        """Whether the scale code of a group and its offset code are halves of a byte."""
        two_levels = self.storage.super_scales
        if two_levels is None or two_levels.zero:
            return False
        return two_levels.has_mins and self.scale_code_bits == 4

    @property
    def scale_codes_offset(self) -> int:
        """From the start of a block."""
        return HALVES * (2 if self.has_offsets else 1)

    @property
    def header_bytes(self) -> int:
        """All but the chunks, the first of which follows."""
        return self.scale_codes_offset + BLOCK_ROWS * self.scale_codes * self.scale_code_bits // 8

    def scale_code_parts(self, code: int) -> tuple[ScaleCodePart, ...]:
        """Where a row has the bits of one of its scale codes."""
        bits = self.scale_code_bits
        if bits == 6:
            quarter = self.scale_codes // 4
            above = code - 3 * quarter
            if above < 0:
                return (ScaleCodePart(code, bits),)
            return tuple(
                ScaleCodePart(above + quarter * part, 2, shift=6, left=2 * part)
                for part in range(3)
            )
        count = self.scale_codes * bits // 8
        return (ScaleCodePart(code % count, bits, shift=bits * (code // count)),)

    @functools.cached_property
    def planes(self) -> tuple[CodePlane, ...]:
        offset, left, planes = 0, 0, []
        for bits in (8, 4, 2, 1):
            if self.storage.bits & bits:
                planes.append(CodePlane(bits, left, offset))
                left += bits
                offset += 4 * BLOCK_ROWS * bits
        return tuple(planes)

    @property
    def chunk_bytes(self) -> int:
        last = self.planes[-1]
        return last.offset + 4 * BLOCK_ROWS * last.bits

    @property
    def block_bytes(self) -> int:
        return self.header_bytes + self.chunks * self.chunk_bytes


def has_records(storage: StorageType) -> TypeGuard[DType]:
    """Whether a weight's tiles have records behind them."""
    return storage in (DType.F16, DType.BF16)


def tile_rows(storage: StorageType) -> int:
    """Rows of a tile."""
    return BLOCK_ROWS if isinstance(storage, BlockFormat) else SCALAR_ROWS


def tile_count(rows: int, storage: StorageType) -> int:
    """Tiles that this many rows take."""
    return ceil_div(rows, tile_rows(storage))


def tile_bytes(columns: int, storage: StorageType) -> int:
    """Bytes of a tile of this many columns."""
    if isinstance(storage, BlockFormat):
        return columns // storage.block_elements * _block_bytes(storage)
    return columns * SCALAR_ROWS * storage.block_bytes


@functools.cache
def _block_bytes(storage: BlockFormat) -> int:
    return BlockLayout(storage).block_bytes


def packed_size(shape: Sequence[int], storage: StorageType) -> int:
    """Bytes that a weight takes in memory; all dimensions but the last are rows."""
    rows = math.prod(shape[:-1])
    of_tiles = tile_count(rows, storage) * tile_bytes(shape[-1], storage)
    return of_tiles + records_bytes(rows, storage)


def records_bytes(rows: int, storage: StorageType) -> int:
    """Bytes of the records of so many rows."""
    return tile_count(rows, storage) * RECORD_BYTES if has_records(storage) else 0
