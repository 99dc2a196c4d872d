"""linear with block weights: integer dot products over quantized activations.

For a row of the weight and a token, over chunks of 32 columns with x ≈ xs · xq, and their scale
groups with w = scale · (q - zero) + offset:

    y = Σ_chunks [ xs · Σ_groups scale · (Σ q·xq - zero · Σ xq) + Σ_groups offset · (xs · Σ xq) ]

The innermost sums are exact integers; `-zero · Σ xq` is where they start. The rest is float32, in
ascending order of chunks, by the same multiply-adds however many tokens a kernel takes at once: a
token's result depends on nothing but its own row (DESIGN.md, "Same tokens").

One kernel takes one tile (16 rows) and `tokens` tokens; a weight is decoded once for all of them,
and their activations are memory operands of the dot products. One token: matrix-vector.

Dispatch: workgroup = tile of tokens + token tiles · tile of rows, so that neighbours share a tile
of the weight. Reads activations (`activations.py`), the weight, bias, gate, residual; writes
output f32 [T, N].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crossinfer.backends.cpu.kernels.activations import ActivationTile
from crossinfer.backends.cpu.kernels.decode import (
    BlockHeader,
    RowPart,
    group_offset,
    group_scale,
    load_codes,
    load_header,
)
from crossinfer.backends.cpu.kernels.epilogue import Epilogue
from crossinfer.backends.cpu.kernels.layout import TILE_ROWS, VECTORS, BlockLayout
from crossinfer.formats.blocks import BlockFormat
from crossinfer.jit.arithmetic import fma, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.dot import dot4
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i8, i32, u8, u32
from crossinfer.jit.value import Value
from crossinfer.jit.variable import Variable


def activation_tile(storage: BlockFormat, tokens: int) -> ActivationTile:
    """The activations that a weight of this format wants."""
    layout = BlockLayout(storage)
    return ActivationTile(tokens, layout.groups, storage.zero, layout.has_offsets)


def build_linear_blocks(
    symbol: str, target: Target, storage: BlockFormat, tokens: int, optional: Sequence[str]
) -> str:
    """Views: activations, weight, the optional operands in order, output.

    Constants: i32 T, N, blocks of a row, token tiles.
    """
    k = KernelBuilder(symbol, target)
    kernel = _Kernel(k, BlockLayout(storage), activation_tile(storage, tokens))
    activations, weight, *others, output = k.views(u8, u8, *[f32] * (len(optional) + 1))
    T, N, blocks, token_tiles = k.constants(i32, i32, i32, i32)
    epilogue = Epilogue(dict(zip(optional, others, strict=True)), output, N)
    lanes = min(TILE_ROWS, target.lanes())
    sums = k.scratch(f32, tokens * lanes)
    with k.workgroups() as group:
        row_tile, token_tile = group // token_tiles, group % token_tiles
        first_token, first_row = token_tile * tokens, row_tile * TILE_ROWS
        records = activations + token_tile * blocks * kernel.record_bytes
        tile = weight + row_tile * blocks * kernel.layout.block_bytes
        with k.range(0, TILE_ROWS, lanes) as part:
            kernel.sum(tile, records, blocks, RowPart(part, lanes), sums)
            count = minimum(T - first_token, tokens)
            epilogue.store(k, sums, lanes, first_row + part, first_token, count)
    return k.finish()


@dataclasses.dataclass(frozen=True)
class _Kernel:
    k: KernelBuilder
    layout: BlockLayout
    tile: ActivationTile

    @property
    def record_bytes(self) -> int:
        """Activations of a block."""
        return self.tile.size_in_bytes * self.layout.chunks

    def sum(
        self, weight: Pointer, records: Pointer, blocks: Value, part: RowPart, sums: Pointer
    ) -> None:
        """The products of one tile with all tokens, into `sums`, f32 [tokens][lanes]."""
        k, layout = self.k, self.layout
        totals = [k.variable(f32.x(part.lanes)) for _ in range(self.tile.tokens)]
        with k.range(0, blocks) as number:
            block = weight + number * layout.block_bytes
            record = records + number * self.record_bytes
            header = load_header(block, layout, part)
            if layout.chunks == 1:
                self._chunk(block + layout.header_bytes, record, header, part, totals)
            else:
                with k.range(0, layout.chunks) as chunk:
                    codes = block + layout.header_bytes + chunk * layout.chunk_bytes
                    here = record + chunk * self.tile.size_in_bytes
                    self._chunk(codes, here, header, part, totals)
        for token, total in enumerate(totals):
            sums.store(token * part.lanes, total.value)

    def _chunk(
        self,
        chunk: Pointer,
        record: Pointer,
        header: BlockHeader,
        part: RowPart,
        totals: Sequence[Variable],
    ) -> None:
        """Add 32 columns to each token's total."""
        layout, groups = self.layout, range(self.layout.groups)
        codes = load_codes(chunk, layout, part)
        scales = [group_scale(chunk, header, layout, group, part) for group in groups]
        offsets = [group_offset(chunk, header, layout, group, part) for group in groups]
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

    def _dot(
        self, codes: Sequence[Value], record: Pointer, token: int, group: int, lanes: int
    ) -> Value:
        """The exact sum of a group's products, zero included, by rows."""
        k, tile = self.k, self.tile
        if tile.zero:
            start = (record + tile.sum(group, token)).cast(i32)[0].splat(lanes)
        else:
            start = k.constant(i32.x(lanes), 0)
        size = VECTORS // tile.groups
        for vector in range(group * size, (group + 1) * size):
            x = (record + tile.codes(token, vector)).cast(u32)[0].splat(lanes).bits_as(i8)
            start = dot4(start, codes[vector], x, self.layout.storage.bits)
        return start


def _splat(record: Pointer, offset: int, lanes: int) -> Value:
    return (record + offset).cast(f32)[0].splat(lanes)
