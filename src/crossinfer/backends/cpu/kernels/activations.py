"""arrange, quantize: activations as the kernels of linear read them, in tiles of tokens.

    x f32 [T, K]  →  tiles of `tokens` rows, in each of which the columns ascend

so that whatever a kernel wants next lies at a fixed distance from one pointer. Rows behind T in the
last tile hold anything: what becomes of them is never stored.

arrange, for scalar weights:      record = [tokens] f32, one a column
quantize, for block weights:      record = one a chunk of 32 columns:
    codes    i8  [tokens][32]
    scale    f32 [tokens]
    sums     [groups][tokens] of the codes of each scale group of the weight, times what makes up
             for its zero or min:  i32 -zero · Σq   or   f32 scale · Σq

`formats.activations` defines the rounding. Dispatch: x = segments of columns, y = tiles, so that no
two workgroups write to one cache line. Reads x; writes the tiles.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.activation_tile import SEGMENT_COLUMNS, ActivationTile
from crossinfer.backends.cpu.kernels.layout import CHUNK_COLUMNS
from crossinfer.formats.activations import LARGEST, SMALLEST
from crossinfer.jit.arithmetic import minimum, reduce, reduce_add, round_to_integer
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.transpose import transposed
from crossinfer.jit.types import f32, i8, i32, u32
from crossinfer.jit.value import Value


def build_quantize(symbol: str, target: Target, tile: ActivationTile) -> str:
    """Views: x f32, tiles. Constants: i32 T, K, segments."""
    k = KernelBuilder(symbol, target)
    x, tiles = k.views(f32, i8)
    T, K, segments = k.constants(i32, i32, i32)
    chunks, step = K // CHUNK_COLUMNS, SEGMENT_COLUMNS // CHUNK_COLUMNS
    with k.workgroups() as group:
        number, start = group // segments, group % segments * step
        records = tiles + number * chunks * tile.size_in_bytes
        first = number * tile.tokens
        with k.range(0, minimum(T - first, tile.tokens)) as token:
            row = x + (first + token) * K
            with k.range(start, minimum(start + step, chunks)) as chunk:
                values = row.vector(chunk * CHUNK_COLUMNS, CHUNK_COLUMNS)
                _quantize_chunk(k, values, records + chunk * tile.size_in_bytes, token, tile)
    return k.finish()


def _quantize_chunk(
    k: KernelBuilder, values: Value, record: Pointer, token: Value, tile: ActivationTile
) -> None:
    # As integers, magnitudes compare like numbers, and NaN is the largest: none is lost.
    magnitudes = values.bits_as(u32) & 0x7FFF_FFFF
    largest = reduce(magnitudes, lambda a, b: (a > b).select(a, b)).bits_as(f32)
    inverse = (largest >= SMALLEST).select(k.constant(f32, LARGEST) / largest, 0.0)
    scale = (largest < SMALLEST).select(0.0, largest / float(LARGEST))
    codes = round_to_integer(values * inverse)

    record.store(token * CHUNK_COLUMNS, codes.to(i8))
    floats = record.cast(f32)
    floats[token + tile.scale(0) // 4] = scale
    for group in range(tile.groups if tile.has_sums else 0):
        size = CHUNK_COLUMNS // tile.groups
        total = reduce_add(codes.part(group * size, size))
        where = token + tile.sum(group, 0) // 4
        if tile.has_offsets:
            floats[where] = scale * total.to(f32)
        else:
            record.cast(i32)[where] = total * -tile.zero


def build_arrange(symbol: str, target: Target, tokens: int) -> str:
    """Views: x f32, tiles. Constants: i32 T, K, segments."""
    k = KernelBuilder(symbol, target)
    x, tiles = k.views(f32, f32)
    T, K, segments = k.constants(i32, i32, i32)
    with k.workgroups() as group:
        number, start = group // segments, group % segments * SEGMENT_COLUMNS
        made, first = tiles + number * K * tokens, number * tokens
        end = minimum(start + SEGMENT_COLUMNS, K)
        if tokens == target.lanes():
            rows = [x + minimum(first + token, T - 1) * K for token in range(tokens)]
            whole = end - (end - start) % tokens
            with k.range(start, whole, tokens) as column:
                vectors = transposed([row.vector(column, tokens) for row in rows])
                for place, vector in enumerate(vectors):
                    made.store((column + place) * tokens, vector)
            start = whole
        with k.range(0, minimum(T - first, tokens)) as token:
            row = x + (first + token) * K
            with k.range(start, end) as column:
                made[column * tokens + token] = row[column]
    return k.finish()
