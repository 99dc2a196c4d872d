"""Cases of rope_kv."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.batches import LAYOUTS, Layout, make_tables
from crossinfer.verify.case import Case
from crossinfer.verify.cases_attention import HEADS, batch_tables
from crossinfer.verify.data import Random, random_values


def rope_kv_cases() -> Iterator[Case]:
    for storage, interleaved in itertools.product((DType.F16, DType.F32), (False, True)):
        for number, (name, layout) in enumerate(LAYOUTS.items()):
            yield _rope_kv(name, layout, HEADS[number % len(HEADS)], storage, interleaved)


def _rope_kv(
    shape_class: str,
    layout: Layout,
    heads: tuple[int, int, int],
    storage: DType,
    interleaved: bool,
) -> Case:
    query_heads, kv_heads, D = heads
    positions = max(length for _, length in layout.sequences)
    inputs = {
        "q": float32(layout.rows, query_heads * D),
        "k": float32(layout.rows, kv_heads * D),
        "v": float32(layout.rows, kv_heads * D),
        "table": float32(positions, D // 2, 2),
        **batch_tables(layout),
        "cache": Operand((layout.kv_blocks, 2, kv_heads, BLOCK_TOKENS, D), storage, Role.KV_CACHE),
    }
    make = functools.partial(_inputs, layout=layout, inputs=inputs)
    return Case(RopeKv(D, interleaved), inputs, shape_class, make)


def _inputs(rng: Random, layout: Layout, inputs: dict[str, Operand]) -> dict[str, Array]:
    """Padding rows are NaN; the cache is full of other values, which must stay where they are."""
    made = {name: random_values(rng, *inputs[name].shape) for name in ("q", "k", "v")}
    tables = make_tables(rng, layout)
    for values in made.values():
        values[tables["query_start"][-1] :] = np.nan
    angle = rng.uniform(0, 2 * np.pi, inputs["table"].shape[:-1])
    made["table"] = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)
    cache = inputs["cache"]
    assert isinstance(cache.storage, DType)
    stored = encode_scalars(random_values(rng, *cache.shape), cache.storage)
    return {**made, **tables, "cache": stored}
