"""The kernels that prepare activations: bit for bit what `formats.activations` defines."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.backends.cpu.kernels.activation_tile import (
    QUANTIZED,
    ActivationTile,
    activation_tile,
)
from crossinfer.backends.cpu.kernels.linear import lower_linear, tokens_at_once
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import Q4_0, Q4_1, Q4_K, Q6_K, BlockFormat, StorageType
from crossinfer.graph.op import float32
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.jit.target import Target, host_targets
from crossinfer.testing.native import check_guards, guarded, run_dispatch, to_memory

TARGETS = host_targets()


def prepared(target: Target, storage: StorageType, x: Array) -> Array:
    """The activations' memory as float32 after the first dispatch of a product."""
    T, K = x.shape
    operands = {
        "x": float32(T, K),
        "weight": Operand((1, K), storage, Role.WEIGHT),
        "output": float32(T, 1),
    }
    (lowering,) = lower_linear(operands, kernel_library(target))
    memory = {"x": to_memory(x, operands["x"])}
    memory |= {name: guarded(size) for name, size in lowering.scratch.items()}
    run_dispatch(lowering.dispatches[0], memory)
    for array in memory.values():
        check_guards(array)
    return memory[next(iter(lowering.scratch))].view(np.float32)


def tokens_of(target: Target) -> int:
    """Tokens of a tile where there are many rows."""
    return tokens_at_once(512, target)


def records(memory: Array, tile: ActivationTile, rows: int, chunks: int) -> Array:
    """uint8 [rows, chunks, n]: each row's codes, scale and sums."""
    sizes = [32] + [4] * (1 + tile.groups * tile.has_sums)
    whole = memory.view(np.uint8).reshape(-1, chunks, tile.size_in_bytes)
    parts, start = [], 0
    for size in sizes:
        part = whole[..., start : start + size * tile.tokens]
        parts.append(part.reshape(*whole.shape[:2], tile.tokens, size))
        start += size * tile.tokens
    joined = np.concatenate(parts, axis=-1).transpose(0, 2, 1, 3)
    return joined.reshape(-1, chunks, joined.shape[-1])[:rows]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("storage", [Q4_0, Q4_1, Q4_K, Q6_K], ids=lambda storage: storage.label)
def test_quantize_follows_the_definition(target: Target, storage: BlockFormat) -> None:
    rng = np.random.default_rng(0)
    T, K = 37, 768
    x = rng.standard_normal((T, K), dtype=np.float32) * np.exp(rng.normal(0, 5, (T, 1)))
    x = x.astype(np.float32)
    x[3, :64] = 0
    x[4, 32:64] = 1e-35
    x[5] = np.arange(K) % 2 * 1e35
    x[6] = np.round(x[6] * 127) * 0.5  # many ties
    tile = activation_tile(storage, tokens_of(target))
    found = records(prepared(target, storage, x), tile, T, K // 32)

    codes, scales = QUANTIZED.quantize(x)
    np.testing.assert_array_equal(found[..., :32].view(np.int8).reshape(T, K), codes)
    np.testing.assert_array_equal(found[..., 32:36].copy().view(np.float32)[..., 0], scales)
    sums = codes.reshape(T, K // 32, tile.groups, -1).sum(axis=-1, dtype=np.int32)
    kept = found[..., 36:].copy()
    if tile.has_offsets:
        expected = scales[..., None] * sums.astype(np.float32)
        np.testing.assert_array_equal(kept.view(np.float32), expected)
    else:
        np.testing.assert_array_equal(kept.view(np.int32), -storage.zero * sums)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_is_not_finite_shows_in_the_scale(target: Target, value: float) -> None:
    x = np.ones((1, 64), dtype=np.float32)
    x[0, 40] = value
    found = records(prepared(target, Q4_0, x), activation_tile(Q4_0, 1), 1, 2)
    scales = found[..., 32:36].copy().view(np.float32).reshape(-1)
    assert np.isfinite(scales).tolist() == [True, False]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_arrange_only_moves(target: Target) -> None:
    T, K, tokens = 37, 301, tokens_of(target)
    x = np.random.default_rng(0).standard_normal((T, K), dtype=np.float32)
    found = prepared(target, DType.F16, x).reshape(-1, K, tokens)
    np.testing.assert_array_equal(found.transpose(0, 2, 1).reshape(-1, K)[:T], x)
