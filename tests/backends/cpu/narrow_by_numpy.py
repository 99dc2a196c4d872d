"""Tiles of 16-bit scalars by NumPy, written apart from the native packer, as its oracle.

What `narrow_layout` says, by arithmetic on values where the packer shifts bits.
"""

from __future__ import annotations

import numpy as np

from crossinfer.backends.cpu.kernels import narrow_layout
from crossinfer.core.dtypes import Array, DType

ROWS = 32


def pack_halves(rows: Array, storage: DType) -> Array:
    """uint16 [N, K] to the packed weight, flat uint8."""
    count, columns = rows.shape
    of_tile, of_group = 2 * ROWS * columns, narrow_layout.group_tiles(columns)
    tiles = -(-count // ROWS)
    memory, records, at = np.zeros(tiles * of_tile, dtype=np.uint8), [], 0
    for tile in range(tiles):
        if tile % of_group == 0:
            at = tile * of_tile
        given = rows[ROWS * tile : ROWS * (tile + 1)]
        made = pack_narrow_tile(given, storage)
        if made is None:
            whole = np.zeros((ROWS, columns), dtype=np.uint16)
            whole[: len(given)] = given
            data, record = np.ascontiguousarray(whole.T), (at // 64, -1, 0.0)
        else:
            data, exceptions, power = made
            record = (at // 64, exceptions, power)
        size = data.nbytes
        memory[at : at + size] = data.reshape(-1).view(np.uint8)
        at += -(-size // 64) * 64
        records.append(record)
    fields = [("start", "<u4"), ("exceptions", "<i4"), ("power", "<f4")]
    return np.concatenate([memory, np.array(records, dtype=fields).view(np.uint8)])


def pack_narrow_tile(given: Array, storage: DType) -> tuple[Array, int, float] | None:
    """Its bytes as uint32, the number of exceptions, and the power; None if it stays plain."""
    values = widened(given, storage)
    columns = values.shape[1]
    if columns % 8 or not np.all(np.isfinite(values)) or not np.any(values):
        return None
    top = int(np.frexp(np.abs(values).max())[1]) - 1
    if not -64 + 8 <= top <= 16:
        return None
    for exponent in range(top, top - 8, -1):
        exact = codes_of(values, exponent)
        if np.count_nonzero(exact < 0) <= values.size // 512:
            break
    else:
        return None
    codes = exact[np.minimum(np.arange(ROWS), len(exact) - 1)]  # rows that are missing
    words = words_of(np.where(codes < 0, 0, codes))
    row, column = np.nonzero(exact < 0)
    order = np.lexsort((row, column, column // 8, row // 16, column // 32))
    row, column = row[order], column[order]
    exceptions = np.empty((len(row), 2), dtype=np.uint32)
    exceptions[:, 0] = column * ROWS + row
    exceptions[:, 1] = values[row, column].view(np.uint32)
    data = np.concatenate([words.reshape(-1), exceptions.reshape(-1)])
    return data, len(row), 2.0**exponent


def widened(given: Array, storage: DType) -> Array:
    """float32."""
    if storage is DType.F16:
        return given.view(np.float16).astype(np.float32)
    return (given.astype(np.uint32) << 16).view(np.float32)


def codes_of(values: Array, exponent: int) -> Array:
    """Sign, e and m of each number in units of 2ᵉˣᵖᵒⁿᵉⁿᵗ, as 12 bits; -1 where it has none."""
    fraction, power = np.frexp(np.abs(values.astype(np.float64)))
    e = power - 1 - exponent + 15
    m = (2 * fraction - 1) * 128
    has_one = (values != 0) & (e >= 0) & (e < 16) & (m == np.floor(m))
    code = np.signbit(values) * 2048 + e * 128 + m
    return np.where(has_one, code, -1).astype(np.int64)


def words_of(codes: Array) -> Array:
    """[32, columns] of 12 bits to uint32 [groups of eight columns, 3, 32]."""
    groups = codes.T.reshape(-1, 4, 2, ROWS)  # of each, pairs of columns
    halves = (groups >> 11 << 15) | (groups & 0x7FF)
    s, e, m = groups[:, 3] >> 11, groups[:, 3] >> 7 & 15, groups[:, 3] & 127
    for word, nibble in enumerate((e, m >> 3, s << 3 | m & 7)):
        halves[:, word] |= nibble << 11
    return (halves[:, :3, 0] | halves[:, :3, 1] << 16).astype(np.uint32)
