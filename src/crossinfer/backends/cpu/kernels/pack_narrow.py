"""pack, for 16-bit scalars: tiles in 12 bits a number where that loses nothing, else plain.

See `narrow_layout` for what is written. A tile's window of exponents is the highest one that leaves
few exceptions; some huge numbers do not keep a tile from being narrow.

Views: rows u8 (read), tiles u8 (written), u32 [1] that becomes 1 if a number is NaN or infinite,
records u32 (written); tiles and records start with those of the first tile of these rows.
Constants: rows, columns, number of that tile in the weight, tiles of a group.
Rows of the last tile that don't exist become copies of the last row, or zeros in a plain tile.
Dispatch: a workgroup is a group of tiles.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.layout import SCALAR_ROWS
from crossinfer.backends.cpu.kernels.narrow_layout import (
    COLUMN_BYTES,
    EXCEPTION_BYTES,
    EXPONENT,
    EXPONENTS,
    GROUP_COLUMNS,
    LEAST_POWER,
    LOWER_MANTISSA,
    MOST_POWER,
    NUMBERS_OF_EXCEPTION,
    PLAIN,
    RECORD_WORDS,
    SIGN,
    START_BYTES,
    UPPER_MANTISSA,
)
from crossinfer.backends.cpu.kernels.pack_tiles import (
    SQUARE,
    Finite,
    NextTile,
    Rows,
    transpose_scalars,
)
from crossinfer.core.dtypes import DType
from crossinfer.jit.arithmetic import any_lane, minimum, reduce_add, reduce_max
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.transpose import transposed
from crossinfer.jit.types import f16, f32, i32, i64, u8, u16, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable

_FRACTION_BITS = 23
_EXPONENT_BIAS = 127
_MAGNITUDE = 0x7FFF_FFFF
_SIGN = 0x8000_0000
_PAIRS = GROUP_COLUMNS // 2
_COLUMNS = 2 * SQUARE
"""That are transposed at once, two in a word."""
_WINDOWS = 8
"""How many are tried."""
_SEEN_AT_ONCE = 1024
"""Numbers, before it is asked whether there are too many exceptions already."""


def build_pack_narrow(symbol: str, target: Target, storage: DType) -> str:
    k = KernelBuilder(symbol, target)
    rows, tiles, bad, records = k.views(u8, u8, u32, u32)
    N, K, number, of_group = k.constants(i32, i32, i32, i32)
    plain_bytes = K * (SCALAR_ROWS * storage.block_bytes)
    last = (N + (SCALAR_ROWS - 1)) // SCALAR_ROWS
    finite = Finite(k, storage)
    with k.workgroups() as group:
        first = group * of_group
        offset = k.variable(i64, first * plain_bytes)
        with k.range(first, minimum(first + of_group, last)) as tile:
            source = _Source(k, storage, rows, tile, N, K)
            record = records + tile * RECORD_WORDS
            record[0] = ((number * plain_bytes + offset.value) // START_BYTES).to(u32)
            window = _Window(k, source)
            goal = tiles + offset.value
            with k.if_else(window.is_good()) as (then, otherwise):
                with then:
                    exceptions = _Words(k, source, window.base, goal).write()
                    record[1] = exceptions.to(u32)
                    record[2] = window.power().bits_as(u32)
                    offset += _whole_lines(K * COLUMN_BYTES + exceptions * EXCEPTION_BYTES)
                with otherwise:
                    record[1] = k.constant(u32, PLAIN & 0xFFFF_FFFF)
                    record[2] = k.constant(u32, 0)
                    source.transpose(goal, finite)
                    offset += plain_bytes
    with k.if_(finite.failed()):
        bad[0] = 1
    return k.finish()


def _whole_lines(size: Value) -> Value:
    return (size + (START_BYTES - 1)) // START_BYTES * START_BYTES


class _Source:
    """The rows of a tile in the file, which follow one another."""

    def __init__(
        self, k: KernelBuilder, storage: DType, rows: Pointer, tile: Value, N: Value, K: Value
    ) -> None:
        self._k = k
        self.storage = storage
        self.columns = K
        self._all = rows
        self._tile = tile
        self._of_all = N
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

    def transpose(self, goal: Pointer, finite: Finite) -> None:
        """Into a plain tile."""
        size = SCALAR_ROWS * self.storage.block_bytes
        source = Rows(
            self._all,
            self._tile * SCALAR_ROWS,
            self._of_all,
            self.columns * self.storage.block_bytes,
        )
        following = NextTile(self.first, goal, self.columns, (size, size))
        transpose_scalars(self._k, source, self.storage, self.columns, goal, finite, following)

    def widened(self, halves: Value) -> Value:
        """Numbers of the file, u16, as the bits of float32."""
        if self.storage is DType.BF16:
            return halves.to(u32) << 16
        return Value(halves.emitter, f16.x(halves.type.lanes), halves.llvm).to(f32).bits_as(u32)


class _Window:
    """The exponents of a tile's words: `base` is the lowest, in its place of float32's bits."""

    def __init__(self, k: KernelBuilder, source: _Source) -> None:
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
    code = (bits & _MAGNITUDE) - base  # wraps if it is below
    return (code < (EXPONENTS << _FRACTION_BITS)) & ((bits & 0xFFFF) == 0)


class _Words:
    """Writes a narrow tile."""

    def __init__(self, k: KernelBuilder, source: _Source, base: Value, goal: Pointer) -> None:
        self._k = k
        self._source = source
        self._base = base
        self._goal = goal
        self._exceptions = k.variable(i64)
        self._pairs = k.scratch(u32, _COLUMNS // 2 * SQUARE)

    def write(self) -> Value:
        """The number of exceptions."""
        k, columns = self._k, self._source.columns
        with k.range(0, columns, _COLUMNS) as start:
            count = minimum(columns - start, _COLUMNS)
            self._source.fetch_next(start, _COLUMNS)
            with k.range(0, SCALAR_ROWS, SQUARE) as row:
                with k.if_else(count == _COLUMNS) as (then, otherwise):
                    with then:
                        self._transpose(start, row)
                    with otherwise:
                        self._gather(start, row, count)
                with k.range(0, count, GROUP_COLUMNS) as column:
                    pairs = self._pairs + column // 2 * SQUARE
                    self._write_group(pairs, start + column, row)
        return self._exceptions.value

    def _transpose(self, start: Value, row: Value) -> None:
        """32 columns of 16 rows into `_pairs`, [pair of columns][row]."""
        of_rows = [
            self._source.row(row + number, start).cast(u32).vector(0, SQUARE)
            for number in range(SQUARE)
        ]
        for number, vector in enumerate(transposed(of_rows)):
            self._pairs.store(number * SQUARE, vector)

    def _gather(self, start: Value, row: Value, count: Value) -> None:
        """As `_transpose`, of `count` columns."""
        with self._k.range(0, SQUARE) as number:
            words = self._source.row(row + number, start).cast(u32)
            with self._k.range(0, count // 2) as pair:
                self._pairs[pair * SQUARE + number] = words[pair]

    def _write_group(self, pairs: Pointer, column: Value, row: Value) -> None:
        """The words of eight columns of 16 rows."""
        k, codes = self._k, []
        outside = k.constant(u32.x(SQUARE), 0) != 0
        for number in range(_PAIRS):
            pair = pairs.vector(number * SQUARE, SQUARE)
            both = []
            for half in (0, 1):
                bits = self._source.widened((pair >> (16 * half)).to(u16))
                inside = is_inside(bits, self._base)
                outside = outside | ~inside
                code = ((bits & _MAGNITUDE) - self._base | bits & _SIGN) >> 16
                both.append(inside.select(code, 0))
            codes.append(both[0] | (both[1] << 16))
        a, b, c, last = codes
        words = (
            a | ((last & EXPONENT) << 4),
            b | ((last & UPPER_MANTISSA) << 8),
            c | ((last & LOWER_MANTISSA) << 11) | ((last & SIGN) >> 1),
        )
        goal = (self._goal + column * COLUMN_BYTES).cast(u32)
        for number, word in enumerate(words):
            goal.store(row + number * SCALAR_ROWS, word)
        with k.if_(any_lane(outside)):
            self._write_exceptions(pairs.cast(u16), column, row)

    def _write_exceptions(self, halves: Pointer, column: Value, row: Value) -> None:
        """Those of eight columns, whose `halves` are [pair of columns][row][column]."""
        k = self._k
        first = (self._goal + self._source.columns * COLUMN_BYTES).cast(u32)
        rows = minimum(self._source.rows - row, SQUARE)
        with k.range(0, GROUP_COLUMNS) as number, k.range(0, rows) as lane:
            place = (number // 2 * SQUARE + lane) * 2 + number % 2
            bits = self._source.widened(halves[place])
            with k.if_(~is_inside(bits, self._base)):
                here = first + self._exceptions.value * (EXCEPTION_BYTES // 4)
                here[0] = ((column + number) * SCALAR_ROWS + row + lane).to(u32)
                here[1] = bits
                self._exceptions += 1
