"""The meanings of rope_kv and attention, against plain loops over a paged cache."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crossinfer.core.dtypes import Array
from crossinfer.graph.batch import BLOCK_TOKENS, PADDING_BLOCK, sequences
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv

# Sequences of (rows, kv_len): a prefill over a block border, a decode, a chunk; then padding.
SEQUENCES = ((18, 18), (1, 17), (4, 16))
BLOCKS = ((3, 7), (2, 5), (6,))
ROWS, KV_BLOCKS, D = 25, 9, 6
QUERY_START = np.array([0, 18, 19, 23, 23], dtype=np.int32)
KV_LEN = np.array([18, 17, 16, 0], dtype=np.int32)
BLOCK_TABLE = np.array([[3, 7, 0], [2, 5, 0], [6, 0, 0], [0, 0, 0]], dtype=np.int32)
TABLES = {"query_start": QUERY_START, "kv_len": KV_LEN, "block_table": BLOCK_TABLE}

HEADS = pytest.mark.parametrize(("query_heads", "kv_heads"), [(1, 1), (3, 3), (6, 2), (7, 1)])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def rows_of(sequence: int) -> list[tuple[int, int]]:
    """(row, position) of a sequence's rows in the step."""
    rows, kv_len = SEQUENCES[sequence]
    start = sum(rows for rows, _ in SEQUENCES[:sequence])
    return [(start + i, kv_len - rows + i) for i in range(rows)]


def test_sequences() -> None:
    found = list(sequences(QUERY_START, KV_LEN, BLOCK_TABLE))
    assert [tuple(s.blocks.tolist()) for s in found] == list(BLOCKS)
    for number, sequence in enumerate(found):
        rows = range(ROWS)[sequence.rows]
        assert [(row, sequence.first_position + i) for i, row in enumerate(rows)] == rows_of(number)
        assert sequence.kv_len == SEQUENCES[number][1]


def loop_attention(
    q: Array, cache: Array, query_heads: int, scale: float, window: int | None
) -> Array:
    kv_heads = cache.shape[2]
    output = np.full(q.shape, np.nan)
    for s in range(len(SEQUENCES)):
        for row, position in rows_of(s):
            for h in range(query_heads):
                query = q[row, h * D : (h + 1) * D]
                kv_head = h * kv_heads // query_heads
                first = 0 if window is None else max(0, position - window + 1)
                total, mixed = 0.0, [0.0] * D
                for j in range(first, position + 1):
                    block, slot = BLOCKS[s][j // BLOCK_TOKENS], j % BLOCK_TOKENS
                    key, value = cache[block, :, kv_head, slot]
                    weight = math.exp(scale * sum(query[i] * key[i] for i in range(D)))
                    total += weight
                    mixed = [m + weight * value[i] for i, m in enumerate(mixed)]
                output[row, h * D : (h + 1) * D] = np.array(mixed) / total
    return output


@HEADS
@pytest.mark.parametrize("window", [None, 1, 3, 16, 17, 100])
def test_attention(
    rng: np.random.Generator, query_heads: int, kv_heads: int, window: int | None
) -> None:
    q = rng.normal(size=(ROWS, query_heads * D))
    cache = rng.normal(size=(KV_BLOCKS, 2, kv_heads, BLOCK_TOKENS, D))
    inputs: dict[str, Array] = {"q": q, "cache": cache, **TABLES}
    before = {name: values.copy() for name, values in inputs.items()}
    output = Attention(D, 0.7, window).compute(inputs)["output"]
    expected = loop_attention(q, cache, query_heads, 0.7, window)
    used = QUERY_START[-1]
    np.testing.assert_allclose(output[:used], expected[:used], rtol=1e-11, atol=1e-12)
    for name, values in inputs.items():
        np.testing.assert_array_equal(values, before[name])


def test_attention_looks_at_nothing_that_nobody_wrote(rng: np.random.Generator) -> None:
    owned = np.zeros((KV_BLOCKS, BLOCK_TOKENS), dtype=bool)
    for blocks, (_, kv_len) in zip(BLOCKS, SEQUENCES, strict=True):
        for j in range(kv_len):
            owned[blocks[j // BLOCK_TOKENS], j % BLOCK_TOKENS] = True
    cache = rng.normal(size=(KV_BLOCKS, 2, 1, BLOCK_TOKENS, D))
    q = rng.normal(size=(ROWS, D))
    q[QUERY_START[-1] :] = np.nan
    poisoned = np.where(owned[:, None, None, :, None], cache, np.nan)
    op = Attention(D, 1.0)
    expected = op.compute({"q": q, "cache": cache, **TABLES})["output"]
    output = op.compute({"q": q, "cache": poisoned, **TABLES})["output"]
    np.testing.assert_array_equal(output, expected)
    assert np.all(np.isfinite(output))


def test_attention_of_large_scores_does_not_overflow() -> None:
    cache = np.zeros((2, 2, 1, BLOCK_TOKENS, 2))
    cache[1, 0, 0, :3] = [[1000, 0], [1001, 0], [-1000, 0]]
    cache[1, 1, 0, :3] = [[1, 0], [2, 0], [4, 0]]
    tables = {
        "query_start": np.array([0, 1]),
        "kv_len": np.array([3]),
        "block_table": np.array([[1]]),
    }
    output = Attention(2, 1.0).compute({"q": np.array([[1.0, 0]]), "cache": cache, **tables})
    second = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(output["output"], [[1 + second, 0]])


def loop_rotate(head: Array, cos_sin: Array, interleaved: bool) -> Array:
    result = head.copy()
    for i in range(D // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + D // 2)
        cos, sin = cos_sin[i]
        result[a] = head[a] * cos - head[b] * sin
        result[b] = head[a] * sin + head[b] * cos
    return result


@HEADS
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_kv(
    rng: np.random.Generator, query_heads: int, kv_heads: int, interleaved: bool
) -> None:
    q = rng.normal(size=(ROWS, query_heads * D))
    k, v = rng.normal(size=(2, ROWS, kv_heads * D))
    angle = rng.normal(size=(32, D // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    cache = rng.normal(size=(KV_BLOCKS, 2, kv_heads, BLOCK_TOKENS, D))
    expected_q, expected_cache = q.copy(), cache.copy()
    for s in range(len(SEQUENCES)):
        for row, position in rows_of(s):
            for h in range(query_heads):
                part = slice(h * D, (h + 1) * D)
                expected_q[row, part] = loop_rotate(q[row, part], table[position], interleaved)
            for h in range(kv_heads):
                part = slice(h * D, (h + 1) * D)
                block, slot = BLOCKS[s][position // BLOCK_TOKENS], position % BLOCK_TOKENS
                rotated = loop_rotate(k[row, part], table[position], interleaved)
                expected_cache[block, 0, h, slot] = rotated
                expected_cache[block, 1, h, slot] = v[row, part]
    before = k.copy(), v.copy(), table.copy()
    op = RopeKv(D, interleaved)
    made = op.compute({"q": q, "k": k, "v": v, "table": table, **TABLES, "cache": cache})
    assert made == {}
    used = QUERY_START[-1]
    np.testing.assert_allclose(q[:used], expected_q[:used], rtol=1e-13, atol=1e-14)
    others = [block for block in range(KV_BLOCKS) if block != PADDING_BLOCK]
    np.testing.assert_allclose(cache[others], expected_cache[others], rtol=1e-13, atol=1e-14)
    for values, old in zip((k, v, table), before, strict=True):
        np.testing.assert_array_equal(values, old)


def test_rope_kv_rounds_into_the_cache(rng: np.random.Generator) -> None:
    q, k, v = (rng.normal(size=(1, 2)).astype(np.float32) for _ in range(3))
    cache = np.zeros((2, 2, 1, BLOCK_TOKENS, 2), dtype=np.float16)
    table = np.array([[[1, 0]]], dtype=np.float32)
    tables = {
        "query_start": np.array([0, 1]),
        "kv_len": np.array([1]),
        "block_table": np.array([[1]]),
    }
    RopeKv(2).compute({"q": q, "k": k, "v": v, "table": table, **tables, "cache": cache})
    np.testing.assert_array_equal(cache[1, 0, 0, 0], k[0].astype(np.float16))
    np.testing.assert_array_equal(cache[1, 1, 0, 0], v[0].astype(np.float16))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_rope_attention_is_one_after_the_other(
    rng: np.random.Generator, dtype: type, interleaved: bool
) -> None:
    """In a float16 cache, the step's own keys and values are seen before they are rounded."""
    query_heads, kv_heads, window = 6, 2, 9
    cache: Array = rng.normal(size=(KV_BLOCKS, 2, kv_heads, BLOCK_TOKENS, D)).astype(dtype)
    angle = rng.uniform(0, 6, (32, D // 2))
    inputs = {
        "q": rng.normal(size=(ROWS, query_heads * D)),
        "k": rng.normal(size=(ROWS, kv_heads * D)),
        "v": rng.normal(size=(ROWS, kv_heads * D)),
        "table": np.stack([np.cos(angle), np.sin(angle)], axis=-1),
        **TABLES,
    }
    one = {**inputs, "q": inputs["q"].copy(), "cache": cache.copy()}
    output = RopeAttention(D, 0.7, interleaved, window).compute(one)["output"]
    np.testing.assert_array_equal(one["q"], inputs["q"])

    wide = {**inputs, "q": inputs["q"].copy(), "cache": cache.astype(np.float64)}
    RopeKv(D, interleaved).compute(wide)
    expected = Attention(D, 0.7, window).compute({**wide, "q": wide["q"]})["output"]
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(one["cache"], wide["cache"].astype(dtype))
