"""Which exponents the words of a narrow tile have: the part of `pack_narrow` that looks ahead.

A tile's window of 16 exponents is the highest one that leaves few exceptions, of the first eight
below the largest number: some huge numbers do not keep a tile from being narrow.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS
from crossinfer.backends.cpu.kernels.narrow_layout import (
    EXPONENTS,
    GROUP_COLUMNS,
    LEAST_POWER,
    MOST_POWER,
    NUMBERS_OF_EXCEPTION,
    START_BYTES,
)
from crossinfer.core.dtypes import DType
from crossinfer.jit.arithmetic import minimum, reduce_add, reduce_max
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f16, f32, i64, u16, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable

MAGNITUDE = 0x7FFF_FFFF
"""Of float32."""
_FRACTION_BITS = 23
_EXPONENT_BIAS = 127
_WINDOWS = 8
"""How many are tried."""
_SEEN_AT_ONCE = 1024
"""Numbers, before it is asked whether there are too many exceptions already."""


class NarrowSource:
    """The rows of a tile of 16-bit scalars in the file, which follow one another."""

    def __init__(self, storage: DType, rows: Pointer, tile: Value, N: Value, K: Value) -> None:
        """Of tile `tile` of N rows of K columns; `rows` is where the first row is."""
        self.storage = storage
        self.columns = K
        self.rows = minimum(N - tile * SCALAR_ROWS, SCALAR_ROWS)
        self.first = rows + tile * K * (SCALAR_ROWS * storage.block_bytes)

    @property
    def numbers(self) -> Value:
        return self.rows * self.columns

    def row(self, number: Value, column: Value) -> Pointer:
        """The halves of a row from a column on; of the last row if there is none of this number."""
        place = minimum(number, self.rows - 1) * self.columns + column
        return self.first.cast(u16) + place

    def fetch_next(self, column: Value, count: int) -> None:
        """Have a share of the next tile's rows fetched."""
        size = SCALAR_ROWS * self.storage.block_bytes
        line = self.first + (self.columns + column) * size
        for offset in range(0, count * size, START_BYTES):
            line.prefetch(offset)

    def widened(self, halves: Value) -> Value:
        """Numbers of the file, u16, as the bits of float32."""
        if self.storage is DType.BF16:
            return halves.to(u32) << 16
        return Value(halves.emitter, f16.x(halves.type.lanes), halves.llvm).to(f32).bits_as(u32)


class Window:
    """The exponents of a tile's words: `base` is the lowest, in its place of float32's bits."""

    def __init__(self, k: KernelBuilder, source: NarrowSource) -> None:
        self._k = k
        self._source = source
        self._base: Variable = k.variable(u32)
        self._most = source.numbers // NUMBERS_OF_EXCEPTION
        self._good: Variable = k.variable(u32)
        self._choose()

    @property
    def base(self) -> Value:
        return self._base.value

    def is_good(self) -> Value:
        return self._good.value != 0

    def power(self) -> Value:
        """The power of two of numbers whose exponent is the highest, f32."""
        return (self.base + ((EXPONENTS - 1) << _FRACTION_BITS)).bits_as(f32)

    def _choose(self) -> None:
        k, source = self._k, self._source
        top = source.widened(self._largest()) >> _FRACTION_BITS
        low, high = (_EXPONENT_BIAS + power for power in (LEAST_POWER, MOST_POWER))
        whole = source.columns % GROUP_COLUMNS == 0
        with k.if_(whole & (top >= low + _WINDOWS) & (top <= high)):
            tried = k.variable(u32)
            with k.while_() as loop:
                loop.check((tried.value < _WINDOWS) & (self._good.value == 0))
                exponent = top - tried.value - (EXPONENTS - 1)
                self._base.set(exponent << _FRACTION_BITS)
                self._good.set(self._has_few_exceptions().select(k.constant(u32, 1), 0))
                tried += 1

    def _largest(self) -> Value:
        """The largest magnitude, u16 as the file has it."""
        lanes = 32
        largest = self._k.variable(u16.x(lanes))
        halves = self._source.first.cast(u16)
        for at in self._k.vectors(0, self._source.numbers, lanes):
            magnitudes = at.load(halves) & 0x7FFF
            seen = largest.value
            largest.set((magnitudes > seen).select(magnitudes, seen))
        return reduce_max(largest.value)

    def _has_few_exceptions(self) -> Value:
        k, lanes = self._k, 16
        halves, end = self._source.first.cast(u16), self._source.numbers
        count, start = k.variable(i64), k.variable(i64)
        with k.while_() as loop:
            loop.check((start.value < end) & (count.value <= self._most))
            stop = minimum(start.value + _SEEN_AT_ONCE, end)
            counts = k.variable(u32.x(lanes))
            for at in k.vectors(start.value, stop, lanes):
                outside = ~is_inside(self._source.widened(at.load(halves)), self.base)
                outside = outside if at.mask is None else outside & at.mask
                counts += outside.select(k.constant(u32.x(lanes), 1), 0)
            count += reduce_add(counts.value).to(i64)
            start.set(stop)
        return count.value <= self._most


def is_inside(bits: Value, base: Value) -> Value:
    """Whether numbers, as the bits of float32, have a code in the window that starts at `base`."""
    code = (bits & MAGNITUDE) - base  # wraps if it is below
    return (code < (EXPONENTS << _FRACTION_BITS)) & ((bits & 0xFFFF) == 0)
