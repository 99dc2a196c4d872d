"""Where the numbers of a weight lie in a GPU's memory. Every kernel that reads a weight reads this.

Rows stay whole and in order, each padded with zeros to 16 bytes, so that lanes that take
neighbouring pieces of a row read neighbouring 16-byte words. Scalars lie in a row as in a file.
A row of blocks, cut into chunks of 32 columns, is a sequence of regions:

    planes        u32 [chunks][words]        one region for each plane: 8 or 4 bits, 2, 1
    factors       f16 [blocks][1 or 2]       d, and in formats with mins the offset: m or -dmin
    scale codes   u8 [chunks][codes]         only in two-level formats: the scale codes of a chunk's
                                             groups (i8, the zero subtracted), then their min codes

so that    w = d · scale code · (q - zero) + offset · min code    (no codes in one-level formats).

The codes q are cut into planes of 8, 4, 2 and 1 bits (6 = 4 + 2) at their natural size. A plane of
p bits has p words for 32 columns. Columns 4v … 4v + 3 are the bytes of word v mod p, at bit
p · (v div p) of each byte.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from crossinfer.core.shapes import align_up
from crossinfer.formats.blocks import BlockFormat, StorageType

CHUNK_COLUMNS = 32
VECTORS = CHUNK_COLUMNS // 4
"""Runs of four columns in a chunk."""
ROW_ALIGNMENT = 16


@dataclasses.dataclass(frozen=True)
class CodePlane:
    """`bits` bits of each code, which enter the code from its bit `left` up."""

    bits: int
    left: int

    @property
    def mask(self) -> int:
        """The plane's bits at shift 0, in each byte of a word."""
        return ((1 << self.bits) - 1) * 0x01010101

    def position(self, vector: int) -> tuple[int, int]:
        """(word, shift within each byte) of four columns of a chunk."""
        return vector % self.bits, self.bits * (vector // self.bits)


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """A row of `columns` columns of a block format; offsets and sizes are in bytes."""

    storage: BlockFormat
    columns: int

    @property
    def chunks(self) -> int:
        return self.columns // CHUNK_COLUMNS

    @property
    def blocks(self) -> int:
        return self.columns // self.storage.block_elements

    @property
    def groups(self) -> int:
        """Groups in a chunk."""
        return CHUNK_COLUMNS // self.storage.group_elements

    @property
    def factors(self) -> int:
        """float16 numbers of a block."""
        return 1 if self.storage.min_offset is None else 2

    @property
    def codes(self) -> int:
        """Scale and min codes of a chunk."""
        return self.groups * self.factors if self.storage.super_scales else 0

    @functools.cached_property
    def planes(self) -> tuple[CodePlane, ...]:
        planes, left = [], 0
        for bits in (8, 4, 2, 1):
            if self.storage.bits & bits:
                planes.append(CodePlane(bits, left))
                left += bits
        return tuple(planes)

    def plane_offset(self, number: int) -> int:
        return 4 * self.chunks * sum(plane.bits for plane in self.planes[:number])

    @property
    def factor_offset(self) -> int:
        return self.plane_offset(len(self.planes))

    @property
    def code_offset(self) -> int:
        return self.factor_offset + align_up(2 * self.factors * self.blocks, 4)

    @property
    def row_bytes(self) -> int:
        return align_up(self.code_offset + self.codes * self.chunks, ROW_ALIGNMENT)


def row_bytes(columns: int, storage: StorageType) -> int:
    """Bytes that a row takes in memory."""
    if isinstance(storage, BlockFormat):
        return RowLayout(storage, columns).row_bytes
    return align_up(columns * storage.block_bytes, ROW_ALIGNMENT)


def weight_bytes(shape: Sequence[int], storage: StorageType) -> int:
    """Bytes that a weight takes in memory; all dimensions but the last are rows."""
    return math.prod(shape[:-1]) * row_bytes(shape[-1], storage)
