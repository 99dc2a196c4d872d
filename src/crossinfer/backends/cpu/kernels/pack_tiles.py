"""pack: rows as a file stores them, into tiles of rows (see `layout`). Nothing is rounded.

Blocks: a 32-bit word of a file's plane is four columns of one row, and so is a word of a tile, so
that shifting and masking words is all that it takes. Scalars: 16 rows of 16 columns are transposed
in registers; those of 16 bits have a packer of their own, `pack_narrow`.

Views: rows u8 (read), tiles u8 (written), u32 [1] that becomes 1 if a number is NaN or infinite: of
blocks, a scale or a minimum (see `formats.finite`). Constants: rows, blocks or columns of a row.
Rows of the last tile that don't exist become what rows of zero bytes become.
Dispatch: a workgroup is a tile.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    CHUNK_COLUMNS,
    HALVES,
    SCALAR_ROWS,
    BlockLayout,
    CodePlane,
    tile_rows,
)
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BlockFormat, Plane, StorageType
from crossinfer.formats.words import VECTORS, plane_moves
from crossinfer.jit.arithmetic import any_lane, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.transpose import transposed
from crossinfer.jit.types import Type, i32, u8, u16, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable

_SIGN_OF_HALF = 0x8000
_CACHE_LINE = 64
SQUARE = 16
"""Rows and columns of scalars that are transposed in registers."""


def build_pack(symbol: str, target: Target, storage: StorageType) -> str:
    k = KernelBuilder(symbol, target)
    rows, tiles, bad = k.views(u8, u8, u32)
    N, length = k.constants(i32, i32)
    finite = Finite(k, storage)
    with k.workgroups() as tile:
        source = Rows(rows, tile * tile_rows(storage), N, length * storage.block_bytes)
        if isinstance(storage, BlockFormat):
            layout = BlockLayout(storage)
            sizes = BLOCK_ROWS * storage.block_bytes, layout.block_bytes
            following = NextTile(rows, tiles, (tile + 1) * length, sizes)
            goal = tiles + tile * length * layout.block_bytes
            with k.range(0, length) as block:
                following.fetch(block)
                with k.range(0, BLOCK_ROWS) as row:
                    words = source.row(row, block * storage.block_bytes)
                    start = goal + block * layout.block_bytes
                    _BlockOfRow(layout, words, start, row, finite).pack()
        else:
            size = SCALAR_ROWS * storage.block_bytes
            following = NextTile(rows, tiles, (tile + 1) * length, (size, size))
            goal = tiles + tile * length * size
            transpose_scalars(k, source, storage, length, goal, finite, following)
    with k.if_(finite.failed()):
        bad[0] = 1
    return k.finish()


class NextTile:
    """Has a share of the next tile fetched while this one is packed, on both sides.

    A tile's rows follow one another in the file, but are read side by side, some columns of each at
    a time, which no processor foresees.
    """

    def __init__(self, rows: Pointer, tiles: Pointer, first: Value, sizes: tuple[int, int]) -> None:
        """`first` is the next tile's first block or column, `sizes` bytes of either in all of a
        tile's rows, as the file has them and as a tile.
        """
        self._sides = (rows.prefetch, sizes[0]), (tiles.prefetch_for_write, sizes[1])
        self._first = first

    def fetch(self, at: Value, count: int = 1) -> None:
        """`count` blocks or columns from `at` on."""
        for prefetch, size in self._sides:
            for line in range(0, count * size, _CACHE_LINE):
                prefetch((self._first + at) * size + line)


class Finite:
    """Whether all numbers looked at were finite.

    To a number's exponent, one of its last place is added: where the exponent is all ones, that
    carries into the place of the sign, where it is kept. Whatever is below the exponent is 0.
    """

    def __init__(self, k: KernelBuilder, storage: StorageType) -> None:
        bits, exponent = _EXPONENTS[storage if isinstance(storage, DType) else DType.F16]
        self._exponent = exponent
        self._one = exponent & -exponent
        element = Type("u", bits)
        self._sign = 1 << (bits - 1)
        self._scalar: Variable = k.variable(element)
        self._vector: Variable = k.variable(element.x(SQUARE))

    def see(self, numbers: Value) -> None:
        """Numbers of the storage (of blocks: float16) as unsigned integers."""
        carried = (numbers & self._exponent) + self._one
        seen = self._scalar if numbers.type.lanes == 1 else self._vector
        seen.set(seen.value | carried)

    def failed(self) -> Value:
        in_vector = any_lane((self._vector.value & self._sign) != 0)
        return in_vector | ((self._scalar.value & self._sign) != 0)


# Bits, and those of them that are the exponent.
_EXPONENTS = {
    DType.F16: (16, 0x7C00),
    DType.BF16: (16, 0x7F80),
    DType.F32: (32, 0x7F80_0000),
}


class Rows:
    """The rows of a tile in the file. `first` is the number of the tile's first row."""

    def __init__(self, rows: Pointer, first: Value, count: Value, row_bytes: Value) -> None:
        self._rows = rows
        self._first = first
        self._count = count
        self._row_bytes = row_bytes

    def row(self, number: Value | int, offset: Value) -> _Bytes:
        """The bytes of a row from `offset` on."""
        row = self._first + number
        exists = row < self._count
        start = minimum(row, self._count - 1) * self._row_bytes + offset
        return _Bytes(self._rows + start, exists)


class _Bytes:
    """Memory that reads as zeros if it does not exist."""

    def __init__(self, start: Pointer, exists: Value) -> None:
        self._start = start
        self._exists = exists

    def load(self, offset: int, element: Type, lanes: int = 1) -> Value:
        loaded = (self._start + offset).cast(element).vector(0, lanes)
        return self._exists.select(loaded, 0)


class _BlockOfRow:
    """One block of one row, on its way into its lane of a tile's block."""

    def __init__(
        self, layout: BlockLayout, source: _Bytes, goal: Pointer, row: Value, finite: Finite
    ) -> None:
        self._finite = finite
        self._layout = layout
        self._storage = layout.storage
        self._source = source
        self._goal = goal
        self._row = row
        self._words: dict[int, Value] = {}

    def pack(self) -> None:
        layout, storage = self._layout, self._storage
        scale = self._source.load(storage.scale_offset, u16)
        self._finite.see(scale)
        self._store(0, scale)
        if storage.min_offset is not None:
            offset = self._source.load(storage.min_offset, u16)
            self._finite.see(offset)
            self._store(HALVES, offset ^ _SIGN_OF_HALF if layout.two_level else offset)
        if layout.two_level:
            self._scale_codes()
        for plane in layout.planes:
            self._plane(plane)

    def _store(self, offset: int, value: Value) -> None:
        """Write a number to this row's place among the 16 that start at `offset`."""
        (self._goal + offset).cast(value.type)[self._row] = value

    def _chunk(self, number: int) -> int:
        return self._layout.header_bytes + number * self._layout.chunk_bytes

    def _scale_codes(self) -> None:
        layout = self._layout
        made: dict[int, Value] = {}
        for number in range(layout.scale_codes):
            code = self._scale_code(number)
            for part in layout.scale_code_parts(number):
                bits = ((code >> part.left) & part.mask) << part.shift
                made[part.byte] = made[part.byte] | bits if part.byte in made else bits
        for byte, value in made.items():
            self._store(layout.scale_codes_offset + BLOCK_ROWS * byte, value.to(u8))

    def _scale_code(self, number: int) -> Value:
        """One of the file's scale codes, or of its offset codes behind them, u32."""
        two_levels = self._storage.super_scales
        assert two_levels is not None
        made: Value | None = None
        for plane in two_levels.planes:
            if plane.first <= number < plane.first + plane.count:
                byte, shift = plane.position(number - plane.first)
                bits = (self._source.load(byte, u8).to(u32) >> shift) & ((1 << plane.bits) - 1)
                moved = bits << plane.left
                made = moved if made is None else made | moved
        assert made is not None
        return made

    def _plane(self, plane: CodePlane) -> None:
        source = next(p for p in self._storage.planes if p.left == plane.left)
        is_top = plane.left + plane.bits == self._storage.bits
        flip = 0x01010101 << (plane.bits - 1) if self._storage.signed and is_top else 0
        self._words.clear()
        for chunk in range(self._layout.chunks):
            for word in range(plane.bits):
                made = self._plane_word(source, plane, CHUNK_COLUMNS * chunk, word)
                offset = self._chunk(chunk) + plane.offset + 4 * BLOCK_ROWS * word
                self._store(offset, made ^ flip if flip else made)

    def _plane_word(self, source: Plane, plane: CodePlane, first: int, word: int) -> Value:
        """A word of the tile's plane, of the chunk that starts at column `first`."""
        if source.run == 1:
            return _spread_bits(self._word(source, first // CHUNK_COLUMNS))
        made: Value | None = None
        for (number, by), bits in plane_moves(source, plane, first, word).items():
            loaded = self._word(source, number)
            moved = loaded >> by if by >= 0 else loaded << -by
            moved = moved if bits == 0xFFFF_FFFF else moved & bits
            made = moved if made is None else made | moved
        assert made is not None
        return made

    def _word(self, source: Plane, number: int) -> Value:
        """A word of a file's plane; loaded once."""
        if number not in self._words:
            self._words[number] = self._source.load(source.offset + 4 * number, u32)
        return self._words[number]


def _spread_bits(word: Value) -> Value:
    """For planes of run 1: bit 4v + b (column 4v + b of 32) to bit v of byte b."""
    made: Value | None = None
    for vector in range(VECTORS):
        # The product copies the nibble to where bit b of it is the lowest of byte b.
        nibble = (word >> (4 * vector)) & 0xF
        moved = ((nibble * 0x00204081) & 0x01010101) << vector
        made = moved if made is None else made | moved
    assert made is not None
    return made


def transpose_scalars(
    k: KernelBuilder,
    source: Rows,
    storage: DType,
    columns: Value,
    goal: Pointer,
    finite: Finite,
    following: NextTile,
) -> None:
    """Scalars: element [row][column] to [column][row]."""
    element = {2: u16, 4: u32}[storage.block_bytes]
    size, out = storage.block_bytes, goal.cast(element)
    whole = columns - columns % SQUARE
    with k.range(0, whole, SQUARE) as start:
        following.fetch(start, SQUARE)
        with k.range(0, SCALAR_ROWS, SQUARE) as row:
            vectors = [
                source.row(row + number, start * size).load(0, element, SQUARE)
                for number in range(SQUARE)
            ]
            for vector in vectors:
                finite.see(vector)
            for column, vector in enumerate(transposed(vectors)):
                out.store((start + column) * SCALAR_ROWS + row, vector)
    with k.range(whole, columns) as at, k.range(0, SCALAR_ROWS) as row:
        number = source.row(row, at * size).load(0, element)
        finite.see(number)
        out[at * SCALAR_ROWS + row] = number
