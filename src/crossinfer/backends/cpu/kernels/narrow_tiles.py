"""Tiles of 16-bit scalars as a kernel finds them: plain, or in 12 bits (see `narrow_layout`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from crossinfer.backends.cpu.kernels.decode import RowPart
from crossinfer.backends.cpu.kernels.layout import RECORD_BYTES, SCALAR_ROWS, tile_bytes
from crossinfer.backends.cpu.kernels.narrow_layout import (
    COLUMN_BYTES,
    EXCEPTION_BYTES,
    GROUP_WORDS,
    SMALLEST,
    START_BYTES,
    pairs_of_words,
)
from crossinfer.core.dtypes import DType
from crossinfer.core.records import record
from crossinfer.jit.arithmetic import fma
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32, i32, i64, u32
from crossinfer.jit.value import Value

AHEAD_BYTES = 4096
"""How far in front of the words that a token's product reads others are fetched."""


@record
class Tile:
    """One tile: where it starts, and its record."""

    k: KernelBuilder
    start: Pointer
    columns: Value
    is_narrow: Value
    exceptions: Value
    """Their number (i64); of a plain tile, -1."""
    power: Value

    @classmethod
    def find(
        cls, k: KernelBuilder, weight: Pointer, rows: Value, columns: Value, number: Value
    ) -> Tile:
        """Tile `number` of a weight of so many rows; `weight` points to bytes."""
        tiles = (rows + (SCALAR_ROWS - 1)) // SCALAR_ROWS
        records = weight + tiles * columns * tile_bytes(1, DType.F16)
        here = records + number * RECORD_BYTES
        start = here.cast(u32)[0].to(i64) * START_BYTES
        exceptions = here.cast(i32)[1].to(i64)
        return cls(k, weight + start, columns, exceptions >= 0, exceptions, here.cast(f32)[2])

    def group(self, column: Value, first: Value, lanes: int) -> list[Value]:
        """Eight columns from `column` on, of `lanes` rows: four vectors of pairs, u32.

        A pair is two bfloat16 in units of the power, the first column's low.
        """
        words = (self.start + column * COLUMN_BYTES).cast(u32)
        found = [words.vector(first + n * SCALAR_ROWS, lanes) for n in range(GROUP_WORDS)]
        return pairs_of_words(*found)

    def fetch_ahead(self, column: Value) -> None:
        """Have one line of a group of columns some way behind fetched into the second-level cache.

        The processor foresees the others; with a fetch for each of them it reads more slowly.
        """
        self.start.prefetch(column * COLUMN_BYTES + AHEAD_BYTES, level=2)

    @contextlib.contextmanager
    def each_exception(self) -> Iterator[tuple[Value, Value, Value]]:
        """Runs the body for each: its row, its column, its value (f32)."""
        first = (self.start + self.columns * COLUMN_BYTES).cast(u32)
        with self.k.range(0, self.exceptions) as number:
            here = first + number * (EXCEPTION_BYTES // 4)
            place = here[0].to(i64)
            yield place % SCALAR_ROWS, place // SCALAR_ROWS, here.cast(f32)[1]

    def add_exceptions(
        self,
        part: RowPart,
        sums: Pointer,
        tokens: int,
        x: Callable[[Value, int], Value],
        rounded: Callable[[Value], Value] | None = None,
    ) -> None:
        """Finish the sums of a part of the rows, f32 [tokens][lanes], made of the words alone.

        `x` is the activation of a column and a token; `rounded` what a product does to weights.
        """
        stand_in = self.power * SMALLEST
        with self.each_exception() as (of_tile, column, value):
            row = of_tile - part.first
            with self.k.if_((row >= 0) & (row < part.lanes)):
                weight = value if rounded is None else rounded(value)
                for token in range(tokens):
                    place, factor = row + token * part.lanes, x(column, token)
                    # Apart: the difference of both might lose bits of a small number.
                    sums[place] = fma(weight, factor, fma(-stand_in, factor, sums[place]))


def wide(pair: Value) -> tuple[Value, Value]:
    """Both bfloat16 of pairs as f32, the first column's first."""
    return (pair << 16).bits_as(f32), (pair & 0xFFFF_0000).bits_as(f32)
