"""A batch's tables, padded and laid out."""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.engine.batch import Batch, Chunk
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


def test_tables_of_a_ragged_batch() -> None:
    chunks = (
        Chunk(tokens=[7, 8, 9], kv_len=20, blocks=[4, 2], logits=[0, 2]),
        Chunk(tokens=[5], kv_len=1, blocks=[3], logits=[0]),
    )
    sizes = {
        "tokens": 8 * 4,
        "query_start": 5 * 4,
        "kv_len": 4 * 4,
        "block_table": 4 * 3 * 4,
        "logits_rows": 4 * 4,
    }
    arena = consecutive(sizes)
    raw = Batch(chunks).pack(SHAPE, arena)
    assert len(raw) == arena.size

    def table(name: str) -> list[int]:
        region = arena.regions[name]
        values: list[int] = np.frombuffer(raw, np.int32, region.size // 4, region.offset).tolist()
        return values

    assert table("tokens") == [7, 8, 9, 5, 0, 0, 0, 0]
    assert table("query_start") == [0, 3, 4, 4, 4]
    assert table("kv_len") == [20, 1, 0, 0]
    assert table("block_table") == [4, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]
    assert table("logits_rows") == [0, 2, 3, 0]
