"""Cases of rope_kv, alone and with the attention that follows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.batches import LAYOUTS, Layout, make_tables, owned_slots
from crossinfer.verify.case import Case
from crossinfer.verify.cases_attention import HEADS, batch_tables
from crossinfer.verify.data import Random, random_values

_WINDOWS = (1, 16, 17, 31)


def rope_kv_cases() -> Iterator[Case]:
    for storage, interleaved in itertools.product((DType.F16, DType.F32), (False, True)):
        for number, (name, layout) in enumerate(LAYOUTS.items()):
            heads = HEADS[number % len(HEADS)]
            inputs = _inputs(layout, heads, storage)
            make = functools.partial(rope_inputs, layout=layout, inputs=inputs)
            yield Case(RopeKv(heads[2], interleaved), inputs, name, make)


def rope_attention_cases() -> Iterator[Case]:
    """Every layout; windows, both rotations and all heads in turn."""
    for storage, start in ((DType.F16, 0), (DType.F32, 3)):
        for number, (name, layout) in enumerate(LAYOUTS.items(), start):
            for window in (None, _WINDOWS[number % len(_WINDOWS)]):
                heads = HEADS[(number + bool(window)) % len(HEADS)]
                yield _rope_attention(name, layout, heads, storage, number % 2 == 1, window)
        for number, heads in enumerate(HEADS, start):
            layout = LAYOUTS["decode at block borders"]
            yield _rope_attention("heads", layout, heads, storage, number % 2 == 0, None)


def _rope_attention(
    shape_class: str,
    layout: Layout,
    heads: tuple[int, int, int],
    storage: DType,
    interleaved: bool,
    window: int | None,
) -> Case:
    inputs = _inputs(layout, heads, storage)
    op = RopeAttention(heads[2], heads[2] ** -0.5, interleaved, window)
    make = functools.partial(rope_attention_inputs, layout=layout, inputs=inputs)
    return Case(op, inputs, shape_class, make)


def _inputs(layout: Layout, heads: tuple[int, int, int], storage: DType) -> dict[str, Operand]:
    query_heads, kv_heads, D = heads
    positions = max(length for _, length in layout.sequences)
    return {
        "q": float32(layout.rows, query_heads * D),
        "k": float32(layout.rows, kv_heads * D),
        "v": float32(layout.rows, kv_heads * D),
        "table": float32(positions, D // 2, 2),
        **batch_tables(layout),
        "cache": Operand((layout.kv_blocks, 2, kv_heads, BLOCK_TOKENS, D), storage, Role.KV_CACHE),
    }


def rope_inputs(rng: Random, layout: Layout, inputs: Mapping[str, Operand]) -> dict[str, Array]:
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


def rope_attention_inputs(
    rng: Random, layout: Layout, inputs: Mapping[str, Operand]
) -> dict[str, Array]:
    """As above; slots that hold no token before the step hold what would show at once."""
    made = rope_inputs(rng, layout, inputs)
    # Larger than in a model, so that the softmax is far from uniform and a lost token shows.
    made["q"] *= np.float32(2)
    cache = inputs["cache"]
    assert isinstance(cache.storage, DType)
    new = np.diff(made["query_start"])
    before = {**made, "kv_len": made["kv_len"] - new}
    owned = owned_slots(before, layout.kv_blocks)[:, None, None, :, None]
    stored = np.where(owned, random_values(rng, *cache.shape), np.float32(3e4))
    return {**made, "cache": encode_scalars(stored, cache.storage)}
