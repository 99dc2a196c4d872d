"""linear with block weights: integer dot products over quantized activations.

For a row of the weight and a token, over chunks of 32 columns with x ≈ xs · xq, and their scale
groups with w = scale · (q - zero) + offset:

    y = Σ_chunks [ xs · Σ_groups scale · (Σ q·xq - zero · Σ xq) + Σ_groups offset · (xs · Σ xq) ]

The innermost sums are exact integers; `-zero · Σ xq` is where they start, or codes of eight bits
are given a sign and no zero, where a target likes that better. The rest is float32, in ascending
order of chunks, by the same multiply-adds however many tokens a kernel takes at once: a token's
result depends on nothing but its own row (DESIGN.md, "Same tokens").

A kernel takes one tile (16 rows) and `tokens` tokens at a time; a weight is decoded once for all of
them, and their activations are memory operands of the dot products. One token: matrix-vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.activation_tile import ActivationTile, activation_tile
from crossinfer.backends.cpu.kernels.decode import (
    BlockHeader,
    HeaderReader,
    RowPart,
    group_offset,
    group_scale,
    load_codes,
)
from crossinfer.backends.cpu.kernels.layout import VECTORS, BlockLayout
from crossinfer.core.records import record
from crossinfer.formats.blocks import BlockFormat
from crossinfer.jit.arithmetic import fma
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.dot import dot4, dot4_signed, prefers_signed
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.types import f32, i8, i32, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable


@record
class BlockProduct:
    """Products of tiles of one block format with tiles of tokens."""

    k: KernelBuilder
    layout: BlockLayout
    tile: ActivationTile
    headers: HeaderReader
    blocks: Value
    """Blocks of a row."""

    @classmethod
    def of(cls, k: KernelBuilder, storage: BlockFormat, tokens: int, blocks: Value) -> BlockProduct:
        layout = BlockLayout(storage)
        return cls(k, layout, activation_tile(storage, tokens), HeaderReader(k, layout), blocks)

    def sum(
        self,
        weight: Pointer,
        row_tile: Value,
        activations: Pointer,
        token_tile: Value,
        part: RowPart,
        sums: Pointer,
    ) -> None:
        """The products of a tile of rows with a tile of tokens, into `sums`, f32 [tokens][lanes].

        `weight` and `activations` are bytes.
        """
        k, layout = self.k, self.layout
        record_bytes = self.tile.size_in_bytes * layout.chunks
        tile = weight + row_tile * self.blocks * layout.block_bytes
        records = activations + token_tile * self.blocks * record_bytes
        totals = [k.variable(f32.x(part.lanes)) for _ in range(self.tile.tokens)]
        with k.range(0, self.blocks) as number:
            block = tile + number * layout.block_bytes
            record = records + number * record_bytes
            header = self.headers.load(block, part)
            if layout.chunks == 1:
                self._chunk(block, k.index(0), record, header, part, totals)
            else:
                with k.range(0, layout.chunks) as chunk:
                    here = record + chunk * self.tile.size_in_bytes
                    self._chunk(block, chunk, here, header, part, totals)
        for token, total in enumerate(totals):
            sums.store(token * part.lanes, total.value)

    def _chunk(
        self,
        block: Pointer,
        chunk: Value,
        record: Pointer,
        header: BlockHeader,
        part: RowPart,
        totals: Sequence[Variable],
    ) -> None:
        """Add 32 columns to each token's total."""
        layout, groups = self.layout, range(self.layout.groups)
        codes = load_codes(block + (chunk * layout.chunk_bytes + layout.header_bytes), layout, part)
        if self._is_signed:
            codes = [(code ^ layout.storage.zero).bits_as(i8) for code in codes]
        scales = [group_scale(header, layout, chunk, group, part) for group in groups]
        offsets = [group_offset(header, layout, chunk, group, part) for group in groups]
        for token, total in enumerate(totals):
            scaled: Value | None = None
            for group, scale in zip(groups, scales, strict=True):
                whole = self._dot(codes, record, token, group, part.lanes).to(f32)
                scaled = whole * scale if scaled is None else fma(whole, scale, scaled)
            assert scaled is not None
            result = fma(scaled, _splat(record, self.tile.scale(token), part.lanes), total.value)
            for group, offset in zip(groups, offsets, strict=True):
                if offset is not None:
                    sum_ = _splat(record, self.tile.sum(group, token), part.lanes)
                    result = fma(offset, sum_, result)
            total.set(result)

    @property
    def _is_signed(self) -> bool:
        """Whether codes less their zero are multiplied, as bytes with a sign."""
        storage = self.layout.storage
        has_all_bits = storage.bits == 8 and storage.zero == 128
        return has_all_bits and prefers_signed(self.k.target)

    def _dot(
        self, codes: Sequence[Value], record: Pointer, token: int, group: int, lanes: int
    ) -> Value:
        """The exact sum of a group's products, zero included, by rows."""
        k, tile = self.k, self.tile
        is_signed = self._is_signed
        if tile.zero and not is_signed:
            start = (record + tile.sum(group, token)).cast(i32)[0].splat(lanes)
        else:
            start = k.constant(i32.x(lanes), 0)
        size = VECTORS // tile.groups
        for vector in range(group * size, (group + 1) * size):
            x = (record + tile.codes(token, vector)).cast(u32)[0].splat(lanes).bits_as(i8)
            if is_signed:
                start = dot4_signed(start, codes[vector], x)
            else:
                start = dot4(start, codes[vector], x, self.layout.storage.bits)
        return start


def _splat(record: Pointer, offset: int, lanes: int) -> Value:
    return (record + offset).cast(f32)[0].splat(lanes)
