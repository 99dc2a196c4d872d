"""Tiles of 16-bit scalars in 12 bits a number, where that loses nothing.

Published checkpoints are bfloat16, and so are most float16 files in truth: a sign, seven bits of
mantissa, and exponents of which nearly all are among the 16 below the largest of a tile.

    number = power · (-1)ˢ · 2ᵉ⁻¹⁵ · (1 + m / 128)          s of 1 bit, e of 4, m of 7

with one power of two for a tile of 32 rows. The few numbers that are none of these (zeros among
them) are exceptions: place and value stand behind the tile's words, and in the words stands the
code of +2⁻¹⁵. A tile with too many of them, with a number of columns that 8 does not divide, or
with a power that float32 sums might not bear, is plain: [column][32 rows] as the file has it.

Words, [8 columns][3][32 rows] of u32. Halves of word j are columns 2j (low) and 2j + 1:

    bit 15 s    14 … 11 of columns 6 and 7    10 … 7 e    6 … 0 m

so that with the bits 14 … 11 replaced by 0111 they are bfloat16. Columns 6 and 7 have e in word 0,
the upper four bits of m in word 1, s and the lower three of m in word 2.

Tiles follow one another without gaps in groups, each of which starts where it would if all tiles
were plain: a worker packs a group. Behind the tiles there is a record for each, of three words:
where it starts, in 64 bytes from the weight's start; how many exceptions it has, or -1 if it is
plain; its power as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crossinfer.backends.cpu.kernels.layout import RECORD_BYTES, SCALAR_ROWS, tile_bytes
from crossinfer.core.dtypes import DType

GROUP_COLUMNS = 8
"""Columns that share words."""
GROUP_WORDS = 3
"""For each row."""
COLUMN_BYTES = SCALAR_ROWS * 4 * GROUP_WORDS // GROUP_COLUMNS
"""Of a tile's words."""
EXPONENTS = 16
SMALLEST = 2.0 ** (1 - EXPONENTS)
"""What stands in the words for an exception, in units of the power."""
EXCEPTION_BYTES = 8
NUMBERS_OF_EXCEPTION = 512
"""A tile may have one exception for so many numbers: each takes as long as some of them do. So few
leave it smaller than a plain one.
"""
LEAST_POWER, MOST_POWER = -64, 16
"""Binary logarithms. Sums in units of the power, of less than 2¹²⁷ / columns, neither overflow nor
lose more to subnormal numbers than 2⁻¹³³."""
START_BYTES = 64
RECORD_WORDS = RECORD_BYTES // 4
PLAIN = -1
RECORD = np.dtype([("start", np.uint32), ("exceptions", np.int32), ("power", np.float32)])
_GROUP_BYTES = 1 << 19

# Of both halves of a word.
FIELDS = 0x87FF_87FF
BIAS = 0x3800_3800
EXPONENT = 0x0780_0780
UPPER_MANTISSA = 0x0078_0078
LOWER_MANTISSA = 0x0007_0007
SIGN = 0x8000_8000


def pairs_of_words(a: Any, b: Any, c: Any) -> list[Any]:
    """The words of eight columns, vectors of a kernel or of NumPy, as their four pairs of bfloat16.

    In units of the power; the exceptions' places hold `SMALLEST`.
    """
    last = ((a >> 4) & EXPONENT) | ((b >> 8) & UPPER_MANTISSA)
    last = last | ((c >> 11) & LOWER_MANTISSA) | ((c << 1) & SIGN)
    return [(pair & FIELDS) | BIAS for pair in (a, b, c, last)]


def group_tiles(columns: int) -> int:
    """Tiles of a group."""
    return max(1, _GROUP_BYTES // tile_bytes(columns, DType.F16))
