"""Cases of attention."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.batches import LAYOUTS, Layout, make_tables, owned_slots
from crossinfer.verify.case import Case
from crossinfer.verify.data import Random, random_values

# (query heads, KV heads, head_dim): ratios 1, 3 and 7, odd counts
HEADS = ((3, 3, 16), (3, 1, 64), (7, 1, 32), (9, 3, 40), (14, 2, 64), (5, 5, 128))
_WINDOWS = (1, 15, 16, 17)


def attention_cases() -> Iterator[Case]:
    for cache in (DType.F16, DType.F32):
        for number, (name, layout) in enumerate(LAYOUTS.items()):
            heads = HEADS[number % len(HEADS)]
            yield _attention(name, layout, heads, cache, None)
            yield _attention(name, layout, heads, cache, _WINDOWS[number % len(_WINDOWS)])
        for heads in HEADS:
            yield _attention("heads", LAYOUTS["ragged"], heads, cache, None)
        for window in _WINDOWS:
            yield _attention("window", LAYOUTS["ragged"], HEADS[1], cache, window)


def batch_tables(layout: Layout) -> dict[str, Operand]:
    """The types of the tables that say which rows belong to which sequence."""
    return {
        "query_start": Operand((layout.slots + 1,), DType.I32),
        "kv_len": Operand((layout.slots,), DType.I32),
        "block_table": Operand((layout.slots, layout.table_blocks), DType.I32),
    }


def _attention(
    shape_class: str,
    layout: Layout,
    heads: tuple[int, int, int],
    storage: DType,
    window: int | None,
) -> Case:
    query_heads, kv_heads, D = heads
    cache = Operand((layout.kv_blocks, 2, kv_heads, BLOCK_TOKENS, D), storage, Role.KV_CACHE)
    inputs = {
        "q": float32(layout.rows, query_heads * D),
        "cache": cache,
        **batch_tables(layout),
    }
    make = functools.partial(attention_inputs, layout=layout, width=query_heads * D, cache=cache)
    return Case(Attention(D, D**-0.5, window), inputs, shape_class, make)


def attention_inputs(rng: Random, layout: Layout, width: int, cache: Operand) -> dict[str, Array]:
    """Every slot that holds no token, and every padding row, is NaN: nobody may look at them."""
    tables = make_tables(rng, layout)
    owned = owned_slots(tables, layout.kv_blocks)[:, None, None, :, None]
    stored = np.where(owned, random_values(rng, *cache.shape), np.float32(np.nan))
    # Larger than in a model, so that the softmax is far from uniform and a lost token shows.
    q = random_values(rng, layout.rows, width) * np.float32(2)
    q[tables["query_start"][-1] :] = np.nan
    assert isinstance(cache.storage, DType)
    return {"q": q, "cache": encode_scalars(stored, cache.storage), **tables}
