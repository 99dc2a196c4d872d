"""embed: rows of a table.

    output[t] = table[ids[t]]                   NaN for an id outside of the table

Views: ids i32 [T], table [V, H] (read), output f32 [T, H] (written). Constants: T, V, H, rows a
workgroup. Dispatch: a workgroup is some rows.

Activations are dense rows. Weights lie in tiles, where one row's numbers are as far apart as a
tile has rows (see `layout`): few cache lines are shared, but few rows are read.
"""

from __future__ import annotations

import math

from crossinfer.backends.cpu.kernels.decode import (
    HeaderReader,
    RowPart,
    group_offset,
    group_scale,
    load_codes,
)
from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    CHUNK_COLUMNS,
    SCALAR_ROWS,
    BlockLayout,
    has_records,
)
from crossinfer.backends.cpu.kernels.linear_scalars import ELEMENTS
from crossinfer.backends.cpu.kernels.narrow_layout import GROUP_COLUMNS
from crossinfer.backends.cpu.kernels.narrow_tiles import Tile, wide
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BlockFormat, StorageType
from crossinfer.jit.arithmetic import concatenate, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i32, i64, u8
from crossinfer.jit.value import Value


def build_embed(target: Target, symbol: str, storage: StorageType, *, tiled: bool) -> str:
    """`tiled`: the table is a weight. Else it is a dense f32 tensor."""
    k = KernelBuilder(symbol, target)
    ids, table, output = k.views(i32, u8, f32)
    rows, V, H, step = k.constants(i32, i32, i32, i32)
    with k.workgroups() as group:
        first = group * step
        with k.range(first, minimum(first + step, rows)) as row:
            number, goal = ids[row].to(i64), output + row * H
            is_known = (number >= 0) & (number < V)
            with k.if_else(is_known) as (then, otherwise):
                with then:
                    if not tiled:
                        _copy_dense(k, table.cast(f32) + number * H, H, goal)
                    elif isinstance(storage, BlockFormat):
                        _decode_row(k, table, number, H, BlockLayout(storage), goal)
                    else:
                        _gather_row(k, table, number, V, H, storage, goal)
                with otherwise:
                    for at in k.vectors(0, H, 16):
                        at.store(goal, k.constant(f32.x(16), math.nan))
    return k.finish()


def _copy_dense(k: KernelBuilder, source: Pointer, H: Value, goal: Pointer) -> None:
    for at in k.vectors(0, H, 16):
        at.store(goal, at.load(source))


def _gather_row(
    k: KernelBuilder,
    table: Pointer,
    number: Value,
    V: Value,
    H: Value,
    storage: DType,
    goal: Pointer,
) -> None:
    """A row of a tiled scalar table."""
    element = ELEMENTS[storage]
    row = number % SCALAR_ROWS
    if not has_records(storage):
        tile = table + number // SCALAR_ROWS * H * (SCALAR_ROWS * element.size_in_bytes)
        _gather_plain(k, tile.cast(element), row, H, goal)
        return
    found = Tile.find(k, table, V, H, number // SCALAR_ROWS)
    with k.if_else(found.is_narrow) as (then, otherwise):
        with then:
            _gather_narrow(k, found, row, H, goal)
        with otherwise:
            _gather_plain(k, found.start.cast(element), row, H, goal)


def _gather_plain(k: KernelBuilder, tile: Pointer, row: Value, H: Value, goal: Pointer) -> None:
    with k.range(0, H) as column:
        goal[column] = tile[column * SCALAR_ROWS + row].to(f32)


def _gather_narrow(k: KernelBuilder, tile: Tile, row: Value, H: Value, goal: Pointer) -> None:
    with k.range(0, H, GROUP_COLUMNS) as column:
        numbers = [number for pair in tile.group(column, row, 1) for number in wide(pair)]
        goal.store(column, concatenate(numbers) * tile.power)
    with tile.each_exception() as (of_tile, column, value), k.if_(of_tile == row):
        goal[column] = value


def _decode_row(
    k: KernelBuilder, table: Pointer, number: Value, H: Value, layout: BlockLayout, goal: Pointer
) -> None:
    """A row of a tiled block table, chunk by chunk of 32 columns."""
    storage = layout.storage
    part, headers = RowPart(number % BLOCK_ROWS, 1), HeaderReader(k, layout)
    blocks = H // storage.block_elements
    tile = table + number // BLOCK_ROWS * blocks * layout.block_bytes
    with k.range(0, blocks) as b:
        block = tile + b * layout.block_bytes
        header = headers.load(block, part)
        with k.range(0, layout.chunks) as c:
            chunk = block + layout.header_bytes + c * layout.chunk_bytes
            column = b * storage.block_elements + c * CHUNK_COLUMNS
            codes = concatenate(load_codes(chunk, layout, part))
            values = codes.to(i32).to(f32) - float(storage.zero)
            size = storage.group_elements
            for group in range(layout.groups):
                scale = group_scale(header, layout, c, group, part)
                offset = group_offset(header, layout, c, group, part)
                result = values.part(group * size, size) * scale
                if offset is not None:
                    result = result + offset
                goal.store(column + group * size, result)
