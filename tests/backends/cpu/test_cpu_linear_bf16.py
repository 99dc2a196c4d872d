"""Precision "fast": products of bfloat16, where this machine has the instructions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.cpu.kernels.linear import lower_linear
from crossinfer.backends.cpu.library import kernel_library
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import RequestError
from crossinfer.formats.activations import SHORT
from crossinfer.graph.op import float32
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Lowering, Operand
from crossinfer.jit.target import host_target, short_float_target
from crossinfer.testing.native import run_lowering
from crossinfer.verify.cases import all_cases
from crossinfer.verify.data import random_stored
from crossinfer.verify.runner import run_case

SHORT_TARGET = short_float_target(host_target())
STORAGES = (DType.F16, DType.BF16)
needs_bf16 = pytest.mark.skipif(SHORT_TARGET is None, reason="no bfloat16 products here")


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice(threads=2) as opened:
        opened.allow_rounding()
        yield opened


def lower(operands: dict[str, Operand]) -> Lowering:
    assert SHORT_TARGET is not None
    kernels = kernel_library(host_target())
    (lowering,) = lower_linear(operands, kernels, kernel_library(SHORT_TARGET))
    return lowering


def product(storage: DType, x: Array, weight: Array, N: int) -> Array:
    operands = {
        "x": float32(*x.shape),
        "weight": Operand((N, x.shape[1]), storage, Role.WEIGHT),
        "output": float32(len(x), N),
    }
    return run_lowering(lower(operands), operands, {"x": x, "weight": weight})["output"]


@needs_bf16
@pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.label)
@pytest.mark.parametrize("op", ["linear", "gated_linear", "qkv_linear"])
def test_cases(device: CpuDevice, op: str, storage: DType) -> None:
    rng = np.random.default_rng()
    for case in all_cases():
        if case.variant == f"{op}[{storage.label}]" and "norm_weight" not in case.inputs:
            (outcome,) = run_case(device, case, rng)
            assert outcome.passed, outcome.reason
            assert all(".bf16." in name for name in outcome.kernels if name.startswith(op))


@needs_bf16
@pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.label)
def test_a_row_is_the_same_in_any_batch(storage: DType) -> None:
    rng = np.random.default_rng()
    N, K = 35, 333
    weight = random_stored(rng, storage, (N, K))
    x = rng.standard_normal((37, K), dtype=np.float32)
    alone = np.concatenate([product(storage, row[None], weight, N) for row in x])
    for T in (2, 5, 16, 17, 37):
        start = int(rng.integers(0, len(x) - T + 1))
        made = product(storage, x[start : start + T], weight, N)
        assert made.tobytes() == alone[start : start + T].tobytes(), f"{T} rows from {start}"


@needs_bf16
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.label)
def test_what_is_not_finite_stays_visible(storage: DType, value: float) -> None:
    rng = np.random.default_rng()
    x = rng.standard_normal((3, 65), dtype=np.float32)
    x[1, 60] = value
    made = product(storage, x, random_stored(rng, storage, (5, 65)), 5)
    assert np.all(np.isfinite(made[[0, 2]]))
    assert not np.any(np.isfinite(made[1]))


@needs_bf16
def test_results_are_those_of_rounded_operands() -> None:
    """And not of the operands as they came, from which they differ by more than the tolerance."""
    rng = np.random.default_rng()
    x = rng.standard_normal((4, 256), dtype=np.float32)
    weight = random_stored(rng, DType.F16, (9, 256)).view(np.float16).reshape(9, 256)
    made = product(DType.F16, x, weight, 9)
    wide = weight.astype(np.float64)
    assert row_error(made, SHORT.round(x) @ SHORT.round(wide).T) <= Tolerance.F32.value
    assert row_error(made, x.astype(np.float64) @ wide.T) > 10 * Tolerance.F32.value


def test_nothing_is_rounded_unless_asked_for() -> None:
    with CpuDevice(threads=1) as device:
        for case in all_cases():
            if case.variant in ("linear[f16]", "linear[bf16]"):
                (lowering,) = device.lower(case.op, case.operands())
                assert not lowering.quantized


@needs_bf16
def test_a_model_is_fast_only_if_it_is_told_so(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama", "f16")
    for precision, expected in ((None, False), ("exact", False), ("fast", True)):
        with LLM(path, "cpu", context=64, precision=precision) as llm:
            with llm.timeline() as kernels:
                llm.generate([1, 2, 3], max_tokens=2)
            products = [k.name for k in kernels if "linear[f16]" in k.name]
            assert {".bf16." in name for name in products} == {expected}
    with pytest.raises(RequestError, match="must be exact or fast"):
        LLM(path, "cpu", precision="half")
