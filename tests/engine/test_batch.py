"""A batch's tables, padded and laid out."""

from __future__ import annotations

import dataclasses

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.engine.batch import Batch, Chunk, ParameterTables
from crossinfer.models.decoder import StepShape
from crossinfer.plan.memory import consecutive

SHAPE = StepShape(
    rows=8,
    sequences=4,
    table_blocks=3,
    logits_rows=4,
    kv_blocks=9,
    kv_dtype=DType.F16,
    positions=48,
)


SIZES = {
    "tokens": 8 * 4,
    "query_start": 5 * 4,
    "kv_len": 4 * 4,
    "block_table": 4 * 3 * 4,
    "logits_rows": 4 * 4,
}
ARENA = consecutive(SIZES)
RAGGED = Batch(
    (
        Chunk(tokens=[7, 8, 9], kv_len=20, blocks=[4, 2], logits=[0, 2]),
        Chunk(tokens=[5], kv_len=1, blocks=[3], logits=[0]),
    )
)


def table(raw: bytes, name: str) -> list[int]:
    region = ARENA.regions[name]
    values: list[int] = np.frombuffer(raw, np.int32, region.size // 4, region.offset).tolist()
    return values


def check_ragged(raw: bytes) -> None:
    assert len(raw) == ARENA.size
    assert table(raw, "tokens") == [7, 8, 9, 5, 0, 0, 0, 0]
    assert table(raw, "query_start") == [0, 3, 4, 4, 4]
    assert table(raw, "kv_len") == [20, 1, 0, 0]
    assert table(raw, "block_table") == [4, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]
    assert table(raw, "logits_rows") == [0, 2, 3, 0]


def test_tables_of_a_ragged_batch() -> None:
    check_ragged(ParameterTables(SHAPE, ARENA).fill(RAGGED))


def test_nothing_is_left_of_the_step_before() -> None:
    tables = ParameterTables(SHAPE, ARENA)
    full = Batch(tuple(Chunk([9, 9], 40, [5, 6, 7 + n], [1]) for n in range(4)))
    first = tables.fill(full)
    assert table(first, "block_table") == [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10]
    check_ragged(tables.fill(RAGGED))
    check_ragged(tables.fill(RAGGED))
    assert tables.fill(full) == first


def test_a_step_without_logits() -> None:
    shape = dataclasses.replace(SHAPE, logits_rows=0)
    arena = consecutive({name: size for name, size in SIZES.items() if name != "logits_rows"})
    raw = ParameterTables(shape, arena).fill(Batch((Chunk([1, 2], 2, [1]),)))
    assert np.frombuffer(raw, np.int32, 2).tolist() == [1, 2]
