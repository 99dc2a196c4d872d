"""Contexts of several parts of 256 tokens, through a model and the queue."""

from __future__ import annotations

import numpy as np
import pytest
from tests.steps import logits_of
from tests.tiny_models import TinyModels

from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.engine.batch import BatchLimits
from crossinfer.engine.step import StepRunner
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.device import Device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model, load_model

TOKENS = 1100


def logits(model: Model, device: Device, tokens: list[int], cuts: list[int]) -> Array:
    with device:
        runner = StepRunner(
            model,
            [device],
            VerdictStore(None),
            context=TOKENS + 100,
            kv_blocks=80,
            kv_dtype=DType.F32,
            limits=BatchLimits(rows=256, sequences=1, logits_rows=256),
        )
        made = logits_of(runner, tokens, cuts)
        runner.close()
    return made


@pytest.mark.parametrize("threads", [1, 5])
def test_decode_gives_the_bits_of_prefill(threads: int, tiny_models: TinyModels) -> None:
    """Rows of a prompt see their parts one after another; those of decode, side by side."""
    model = load_model(tiny_models("tiny-qwen2", "f16"))
    tokens = np.random.default_rng().integers(0, 300, TOKENS).tolist()
    chunks = [256, 512, 768, 1024]
    whole = logits(model, CpuDevice(threads=threads), tokens, chunks)
    singles = [n for edge in (256, 512, 1024) for n in range(edge - 2, edge + 3)]
    cuts = sorted({*chunks, *singles})
    assert logits(model, CpuDevice(threads=threads), tokens, cuts).tobytes() == whole.tobytes()
    if threads == 1:
        expected = logits(model, ReferenceDevice(), tokens, chunks)
        assert row_error(whole, expected) < 1e-4
