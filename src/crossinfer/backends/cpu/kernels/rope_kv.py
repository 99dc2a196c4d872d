"""rope_kv: rotates queries in place, and writes rotated keys and values to the KV cache.

With (c, s) = table[position, i], each pair of elements of a head becomes

    (a, b) → (a·c - b·s, a·s + b·c)

Pairs are (i, i + D/2), or (2i, 2i + 1) if interleaved.

Views: q f32 [T, Hq, D] (read and written); k, v f32 [T, Hkv, D], table f32 [P, D/2, 2] and the
batch tables (read); cache (written, in the layout of `CacheBlocks`). Constants: T, Hq, Hkv, S, B,
rows a workgroup.
Dispatch: a workgroup is some rows with all their heads. Padding rows are left alone and write
nothing.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.batch import BatchTables, CacheBlocks, widths
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, f32, i32
from crossinfer.jit.value import Value


def build_rope_kv(target: Target, symbol: str, stored: Type, D: int, interleaved: bool) -> str:
    k = KernelBuilder(symbol, target)
    q, keys, values, table, starts, lengths, blocks, cache = k.views(
        f32, f32, f32, f32, i32, i32, i32, stored
    )
    rows, query_heads, kv_heads, S, B, step = k.constants(i32, i32, i32, i32, i32, i32)
    batch = BatchTables(starts, lengths, blocks, S, B)
    kv = CacheBlocks(cache, kv_heads, D)
    with k.workgroups() as group:
        first = group * step
        with k.range(first, minimum(first + step, rows)) as row:
            sequence = batch.sequence_of(k, row)
            with k.if_(sequence < S):
                position = batch.position(sequence, row)
                block = batch.block(sequence, position // BLOCK_TOKENS)
                slot = position % BLOCK_TOKENS
                angles = table + position * D
                for start, width in widths(D // 2):
                    rotation = _Rotation(angles, start, width, D, interleaved)
                    with k.range(0, query_heads) as head:
                        query = q + (row * query_heads + head) * D
                        rotation.store(query, *rotation.of(query))
                    with k.range(0, kv_heads) as head:
                        pair = rotation.of(keys + (row * kv_heads + head) * D)
                        rotation.store_key(kv.half(block, 0, head) + slot, *pair)
                with k.range(0, kv_heads) as head:
                    source = values + (row * kv_heads + head) * D
                    goal = kv.half(block, 1, head) + slot * D
                    for start, width in widths(D):
                        goal.store(start, source.vector(start, width).to(stored))
    return k.finish()


class _Rotation:
    """The rotation of `width` pairs from pair `start` on."""

    def __init__(self, angles: Pointer, start: int, width: int, D: int, interleaved: bool) -> None:
        self._even = [2 * i for i in range(width)]
        self._odd = [2 * i + 1 for i in range(width)]
        cos_sin = angles.vector(2 * start, 2 * width)
        self._cos, self._sin = cos_sin.shuffle(self._even), cos_sin.shuffle(self._odd)
        self._width = width
        self._interleaved = interleaved
        self._first = 2 * start if interleaved else start
        self._second = 2 * start + 1 if interleaved else start + D // 2
        self._stride = 2 if interleaved else 1

    def of(self, head: Pointer) -> tuple[Value, Value]:
        """The first and second elements of the pairs of a head, rotated."""
        if self._interleaved:
            both = head.vector(self._first, 2 * self._width)
            a, b = both.shuffle(self._even), both.shuffle(self._odd)
        else:
            a, b = head.vector(self._first, self._width), head.vector(self._second, self._width)
        return a * self._cos - b * self._sin, a * self._sin + b * self._cos

    def store(self, head: Pointer, a: Value, b: Value) -> None:
        """Write rotated pairs where they came from."""
        if self._interleaved and self._width == 1:
            head[self._first], head[self._second] = a, b
        elif self._interleaved:
            order = [i + self._width * half for i in range(self._width) for half in (0, 1)]
            head.store(self._first, a.shuffle(order, b))
        else:
            head.store(self._first, a)
            head.store(self._second, b)

    def store_key(self, slot: Pointer, a: Value, b: Value) -> None:
        """Write rotated pairs to a slot of a half of K: elements lie 16 apart."""
        for start, vector in ((self._first, a), (self._second, b)):
            rounded = vector.to(slot.element)
            for i in range(self._width):
                slot[(start + self._stride * i) * BLOCK_TOKENS] = rounded.lane(i)
