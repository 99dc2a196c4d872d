"""Attention gives a row the same bits whatever else is in its batch, and however it is chunked.

A batch of few rows with a long table is split over the tokens; a long one is not.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.backends.cpu.kernel_device import KernelDevice

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.shapes import ceil_div
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.jit.target import Target, host_targets

BLOCKS = 100


def attend(device: KernelDevice, op: Attention, stored: dict[str, Array]) -> Array:
    """The rows of the output as their bits."""
    cache = stored["cache"]
    types = {
        name: Operand(array.shape, DType.F32 if array.dtype == np.float32 else DType.I32)
        for name, array in stored.items()
    }
    types["cache"] = Operand(cache.shape, DType.F16, Role.KV_CACHE)
    types["output"] = float32(*stored["q"].shape)
    buffers = {
        name: device.upload(stored[name], type_.shape, type_.storage, type_.role)
        if name in stored
        else device.alloc(type_.shape, type_.storage)
        for name, type_ in types.items()
    }
    recorder = device.recorder()
    (lowering,) = device.lower(op, types)
    for name, size in lowering.scratch.items():
        buffers[name] = device.alloc((size // 4,), DType.F32)
    for dispatch in lowering.bind({name: buffer.view() for name, buffer in buffers.items()}):
        recorder.dispatch(dispatch)
    device.submit(recorder.finish()).wait()
    raw = device.download(buffers["output"].view(0, stored["q"].nbytes))
    return np.frombuffer(raw, np.uint32).reshape(stored["q"].shape)


@pytest.mark.parametrize("target", host_targets(), ids=lambda target: target.name)
@pytest.mark.parametrize("window", [None, 37])
@pytest.mark.parametrize("heads", [(7, 1, 32), (8, 2, 32), (3, 3, 40), (4, 2, 64)])
def test_random_chunks_and_neighbours(
    target: Target, window: int | None, heads: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng()
    query_heads, kv_heads, D = heads
    op = Attention(D, D**-0.5, window)
    cache = rng.standard_normal((BLOCKS, 2, kv_heads, BLOCK_TOKENS, D)).astype(np.float16)
    free = rng.permutation(np.arange(1, BLOCKS, dtype=np.int32))
    lengths = (150, 90, 1100)
    tables, queries, taken = [], [], 0
    for length in lengths:
        count = ceil_div(length, BLOCK_TOKENS)
        tables.append(free[taken : taken + count])
        taken += count
        queries.append(rng.standard_normal((length, query_heads * D)).astype(np.float32) * 2)

    def step(parts: list[tuple[int, int, int]]) -> list[Array]:
        """The output rows of (sequence, first row, last row + 1) in one batch."""
        table = np.zeros((len(parts), max(map(len, tables)) + 1), np.int32)
        for row, (s, _, _) in zip(table, parts, strict=True):
            row[: len(tables[s])] = tables[s]
        ends = np.cumsum([0, *(end - start for _, start, end in parts)]).astype(np.int32)
        stored = {
            "q": np.concatenate([queries[s][start:end] for s, start, end in parts]),
            "cache": cache,
            "query_start": ends,
            "kv_len": np.array([end for _, _, end in parts], np.int32),
            "block_table": table,
        }
        return np.split(attend(device, op, stored), ends[1:-1])

    with KernelDevice(target) as device:
        whole = [step([(s, 0, length)])[0] for s, length in enumerate(lengths)]
        for s, rows in enumerate(whole):
            inputs: dict[str, Array] = {
                "q": queries[s].astype(np.float64),
                "cache": cache.astype(np.float64),
                "query_start": np.array([0, lengths[s]], np.int32),
                "kv_len": np.array([lengths[s]], np.int32),
                "block_table": tables[s][None],
            }
            expected = op.compute(inputs)["output"]
            assert row_error(rows.view(np.float32), expected) <= Tolerance.F32.value
        for _ in range(6):
            parts = []
            for s in rng.permutation(len(lengths)):
                start = int(rng.integers(0, lengths[s]))
                if lengths[s] > 512 and rng.random() < 0.5:  # on both sides of a part's end
                    start = int(rng.integers(500, 513))
                end = min(lengths[s], start + int(rng.integers(1, 24)))
                parts.append((int(s), start, end))
            for (s, start, end), rows in zip(parts, step(parts), strict=True):
                assert np.array_equal(rows, whole[s][start:end])
