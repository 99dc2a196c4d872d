"""pack, for 16-bit scalars: tiles in 12 bits a number where that loses nothing, else plain.

See `narrow_layout` for what is written, and `narrow_window` for how it is decided.

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
    GROUP_COLUMNS,
    LOWER_MANTISSA,
    PLAIN,
    RECORD_WORDS,
    SIGN,
    START_BYTES,
    UPPER_MANTISSA,
)
from crossinfer.backends.cpu.kernels.narrow_window import (
    MAGNITUDE,
    NarrowSource,
    Window,
    is_inside,
)
from crossinfer.backends.cpu.kernels.pack_tiles import (
    SQUARE,
    Finite,
    NextTile,
    Rows,
    transpose_scalars,
)
from crossinfer.core.dtypes import DType
from crossinfer.jit.arithmetic import any_lane, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.transpose import transposed
from crossinfer.jit.types import i32, i64, u8, u16, u32
from crossinfer.jit.value import Value

_SIGN = 0x8000_0000
_PAIRS = GROUP_COLUMNS // 2
_COLUMNS = 2 * SQUARE
"""That are transposed at once, two in a word."""


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
            source = NarrowSource(storage, rows, tile, N, K)
            record = records + tile * RECORD_WORDS
            record[0] = ((number * plain_bytes + offset.value) // START_BYTES).to(u32)
            window = Window(k, source)
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
                    _transpose(k, source, rows, tile, N, goal, finite)
                    offset += plain_bytes
    with k.if_(finite.failed()):
        bad[0] = 1
    return k.finish()


def _transpose(
    k: KernelBuilder,
    source: NarrowSource,
    rows: Pointer,
    tile: Value,
    N: Value,
    goal: Pointer,
    finite: Finite,
) -> None:
    """Into a plain tile."""
    storage, columns = source.storage, source.columns
    size = SCALAR_ROWS * storage.block_bytes
    of_tile = Rows(rows, tile * SCALAR_ROWS, N, columns * storage.block_bytes)
    following = NextTile(source.first, goal, columns, (size, size))
    transpose_scalars(k, of_tile, storage, columns, goal, finite, following)


def _whole_lines(size: Value) -> Value:
    return (size + (START_BYTES - 1)) // START_BYTES * START_BYTES


class _Words:
    """Writes a narrow tile."""

    def __init__(self, k: KernelBuilder, source: NarrowSource, base: Value, goal: Pointer) -> None:
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
                code = ((bits & MAGNITUDE) - self._base | bits & _SIGN) >> 16
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
