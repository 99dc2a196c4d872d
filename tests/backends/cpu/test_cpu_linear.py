"""linear on the CPU: every instruction set of this machine, and the same tokens in any batch.

The kernels run without a device here; the conformance suite runs them through one.
"""

from __future__ import annotations

import dataclasses
import math
import struct

import numpy as np
import pytest
from tests.jit.runnable_targets import runnable_targets

from crossinfer.backends.cpu.kernels.layout import (
    BLOCK_ROWS,
    BlockLayout,
    has_records,
    tile_count,
)
from crossinfer.backends.cpu.kernels.linear import lower_linear
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BLOCK_FORMATS, Q8_0, BlockFormat, StorageType
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.op import float32
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Lowering, Operand
from crossinfer.jit.target import Target
from crossinfer.testing.native import guarded, run_dispatch, run_lowering, to_memory
from crossinfer.verify.case import Case
from crossinfer.verify.cases import cases_of
from crossinfer.verify.data import random_stored

BLOCKS = [*BLOCK_FORMATS, Q8_32]
STORAGES = [DType.F32, DType.F16, DType.BF16, *BLOCKS]
TWO_LEVELS = [storage for storage in BLOCKS if storage.super_scales is not None]
TARGETS = runnable_targets()


def label(value: Target | StorageType) -> str:
    return value.name if isinstance(value, Target) else value.label


def lower(target: Target, operands: dict[str, Operand]) -> Lowering:
    (lowering,) = lower_linear(operands, kernel_library(target))
    return lowering


def types(T: int, N: int, K: int, storage: StorageType) -> dict[str, Operand]:
    return {
        "x": float32(T, K),
        "weight": Operand((N, K), storage, Role.WEIGHT),
        "output": float32(T, N),
    }


def product(target: Target, storage: StorageType, x: Array, weight: Array, N: int) -> Array:
    operands = types(len(x), N, x.shape[1], storage)
    stored = {"x": x, "weight": weight}
    return run_lowering(lower(target, operands), operands, stored)["output"]


def row_length(storage: StorageType, blocks: int) -> int:
    return blocks * (137 if isinstance(storage, DType) else storage.block_elements)


@pytest.mark.parametrize("target", TARGETS, ids=label)
@pytest.mark.parametrize("storage", STORAGES, ids=label)
def test_every_case_on_every_instruction_set(target: Target, storage: StorageType) -> None:
    rng = np.random.default_rng(0)
    for case in cases_of(f"linear[{storage.label}]"):
        assert error_of(case, target, rng) <= Tolerance.F32.value, case.name


def error_of(case: Case, target: Target, rng: np.random.Generator) -> float:
    stored = case.make(rng)
    lowering = lower(target, case.operands())
    made = run_lowering(lowering, case.operands(), stored)["output"]
    return row_error(made, case.expected(stored, lowering.quantized)["output"])


@pytest.mark.parametrize("target", TARGETS, ids=label)
@pytest.mark.parametrize("storage", STORAGES, ids=label)
def test_a_row_is_the_same_in_any_batch(target: Target, storage: StorageType) -> None:
    """Bit for bit, and whatever its neighbours hold."""
    rng = np.random.default_rng(0)
    N, K = 35, row_length(storage, 3)
    weight = random_stored(rng, storage, (N, K))
    x = rng.standard_normal((37, K), dtype=np.float32)
    alone = np.concatenate([product(target, storage, row[None], weight, N) for row in x])
    for T in (2, 3, 5, 8, 16, 17, 37):
        start = int(rng.integers(0, len(x) - T + 1))
        batch = x[start : start + T].copy()
        batch[T // 2] = np.nan
        made = product(target, storage, batch, weight, N)
        others = np.arange(T) != T // 2
        expected = alone[start : start + T]
        assert made[others].tobytes() == expected[others].tobytes(), f"{T} rows from {start}"
        assert np.all(np.isnan(made[T // 2]))


@pytest.mark.parametrize("storage", STORAGES, ids=label)
def test_workgroups_run_in_any_order_and_number(storage: StorageType) -> None:
    rng = np.random.default_rng(0)
    T, N, K = 37, 70, row_length(storage, 3)
    operands = types(T, N, K, storage)
    stored = {
        "x": rng.standard_normal((T, K), dtype=np.float32),
        "weight": random_stored(rng, storage, (N, K)),
    }
    lowering = lower(TARGETS[0], operands)
    expected = run_lowering(lowering, operands, stored)["output"]
    memory = {name: to_memory(stored[name], operands[name]) for name in stored}
    memory["output"] = guarded(4 * T * N)
    memory |= {name: guarded(size) for name, size in lowering.scratch.items()}
    for dispatch in lowering.dispatches:
        total = math.prod(dispatch.grid)
        cuts = np.unique(np.r_[0, rng.integers(0, total, 5), total])
        for number in rng.permutation(len(cuts) - 1):
            first, end = int(cuts[number]), int(cuts[number + 1])
            run_dispatch(dispatch, memory, first, end - first)
    assert memory["output"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("target", TARGETS, ids=label)
@pytest.mark.parametrize("code", [0, 255])
def test_the_largest_codes_do_not_saturate(target: Target, code: int) -> None:
    """Pairs of products of 255 and 127 don't fit 16 bits, where AVX2 has its byte products."""
    K = 64
    blocks = np.full((K // 32, Q8_0.block_bytes), code ^ 0x80, dtype=np.uint8)
    blocks[:, :2] = np.array([1.0], dtype=np.float16).view(np.uint8)
    for sign in (1, -1):
        x = np.full((1, K), sign, dtype=np.float32)
        made = product(target, Q8_0, x, blocks, 1)
        assert made == pytest.approx(sign * K * (code - 128), rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("storage", STORAGES, ids=label)
def test_what_is_not_finite_stays_visible(storage: StorageType, value: float) -> None:
    rng = np.random.default_rng(0)
    K = row_length(storage, 2)
    x = rng.standard_normal((1, K), dtype=np.float32)
    x[0, K - 3] = value
    made = product(TARGETS[0], storage, x, random_stored(rng, storage, (5, K)), 5)
    assert not np.any(np.isfinite(made))


# Mutations: what a wrong kernel would do, which the cases must find.


def failures(storage: StorageType, mutate: str) -> int:
    """Cases of a storage that fail under a mutation of the weight's memory or of constants."""
    rng, count = np.random.default_rng(0), 0
    for case in cases_of(f"linear[{storage.label}]"):
        stored, operands = case.make(rng), case.operands()
        lowering = lower(TARGETS[0], operands)
        *before, product_ = lowering.dispatches
        T, N, steps, tiles = struct.unpack("<4i", product_.constants)
        given = dict(stored)
        if isinstance(storage, DType):
            given["weight"] = mutated_scalars(stored["weight"], (N, steps), storage, mutate)
        memory = {name: to_memory(given[name], operands[name]) for name in given}
        memory["output"] = guarded(operands["output"].storage.bytes_for((T, N)))
        memory |= {name: guarded(size) for name, size in lowering.scratch.items()}
        if isinstance(storage, BlockFormat):
            weight = memory["weight"].reshape(tile_count(N, storage), -1)
            mutate_blocks(weight, N, steps, storage, mutate)
        # Where a tile goes with the row, its weight's records would be looked for elsewhere.
        keeps_tiles = tile_count(N - 1, storage) == tile_count(N, storage)
        if mutate == "missing row" and (keeps_tiles or not has_records(storage)):
            product_ = dataclasses.replace(
                product_, constants=struct.pack("<4i", T, N - 1, steps, tiles)
            )
        elif mutate == "missing token":
            product_ = dataclasses.replace(
                product_, constants=struct.pack("<4i", T - 1, N, steps, tiles)
            )
        for dispatch in (*before, product_):
            run_dispatch(dispatch, memory)
        made = memory["output"].view(np.float32).reshape(T, N)
        expected = case.expected(stored, lowering.quantized)["output"]
        count += row_error(made, expected) > Tolerance.F32.value
    return count


def scale_codes(weight: Array, storage: BlockFormat) -> Array:
    """Those of the first block of each tile, as they lie in memory."""
    layout = BlockLayout(storage)
    return weight[:, layout.scale_codes_offset : layout.header_bytes]


def mutated_scalars(stored: Array, shape: tuple[int, int], storage: DType, mutate: str) -> Array:
    """A weight that packs to what the mutation would do to tiles."""
    weight = stored.copy().reshape(-1).view(f"u{storage.block_bytes}").reshape(shape)
    match mutate:
        case "skipped block":
            weight[:, -1] = 0
        case "swapped scales":
            weight[:2, 0] = weight[:2, 0][::-1]
        case "wrong tail row":
            weight[-1, 0] = weight[1 % len(weight), 0]
    return weight


def mutate_blocks(weight: Array, N: int, steps: int, storage: BlockFormat, mutate: str) -> None:
    """The same to packed tiles of blocks, by tile."""
    match mutate:
        case "skipped block":
            weight.reshape(len(weight), steps, -1)[:, -1] = 0
        case "swapped scales":
            weight[0, :4] = np.roll(weight[0, :4], 2)
        case "swapped scale codes":
            codes = scale_codes(weight, storage)
            codes[0, :2] = np.roll(codes[0, :2], 1)
        case "lost scale code bits":
            scale_codes(weight, storage)[:] &= 0x3F
        case "wrong tail row":
            last = 2 * ((N - 1) % BLOCK_ROWS)
            weight[-1, last : last + 2] = weight[0, 2:4]


MUTATIONS = ("skipped block", "swapped scales", "wrong tail row", "missing row", "missing token")


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("storage", STORAGES, ids=label)
def test_wrong_kernels_fail(storage: StorageType, mutation: str) -> None:
    assert failures(storage, "nothing") == 0
    assert failures(storage, mutation) > len(cases_of(f"linear[{storage.label}]")) // 2


@pytest.mark.parametrize("mutation", ["swapped scale codes", "lost scale code bits"])
@pytest.mark.parametrize("storage", TWO_LEVELS, ids=label)
def test_wrong_scale_codes_fail(storage: BlockFormat, mutation: str) -> None:
    assert failures(storage, mutation) > len(cases_of(f"linear[{storage.label}]")) // 2


def test_results_are_those_of_the_rounded_activations() -> None:
    """And not of the activations as they came: the tolerance is far below the rounding."""
    rng = np.random.default_rng(0)
    for case in cases_of("linear[q8_0]"):
        stored, operands = case.make(rng), case.operands()
        lowering = lower(TARGETS[0], operands)
        made = run_lowering(lowering, operands, stored)["output"]
        assert row_error(made, case.expected(stored)["output"]) > 10 * Tolerance.F32.value
