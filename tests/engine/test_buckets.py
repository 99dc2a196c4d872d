"""Buckets of steps: how row counts are rounded up, and that padding rows change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from tests.steps import CONTEXT, logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import DType
from crossinfer.engine.buckets import step_shape
from crossinfer.hal.device import Device
from crossinfer.models.model import load_model

BETWEEN = {48, 96, 192, 384}


def rows_of(rows: int, device: Device) -> int:
    shape = step_shape(
        rows=rows,
        sequences=3,
        logits_rows=33,
        context=CONTEXT,
        kv_blocks=4,
        kv_dtype=DType.F16,
        device=device,
    )
    assert (shape.sequences, shape.logits_rows) == (4, 64)
    return shape.rows


def test_a_cpu_has_buckets_between_powers_of_two() -> None:
    powers = {1 << exponent for exponent in range(10)}
    with CpuDevice(threads=1) as cpu, ReferenceDevice() as other:
        for rows in range(1, 513):
            assert rows_of(rows, other) == min(size for size in powers if size >= rows)
            assert rows_of(rows, cpu) == min(size for size in powers | BETWEEN if size >= rows)


@pytest.mark.parametrize("rows", [33, 47, 48, 49, 65, 96])
def test_padding_rows_change_no_bit(rows: int, tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-llama", "q8_0"))
    tokens = np.random.default_rng().integers(0, 300, rows).tolist()
    cpu = CpuDevice(threads=2)
    with step_runner(model, [cpu]) as runner:
        at_once = logits_of(runner, tokens)
        assert {shape.rows for shape in runner._recorded} == {1, rows_of(rows, cpu)}
        cuts = range(16, rows, 16)  # buckets without padding, but for the last
        np.testing.assert_array_equal(at_once, logits_of(runner, tokens, cuts))
