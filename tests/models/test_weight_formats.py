"""A model in each storage format computes what its dequantized weights compute."""

from __future__ import annotations

import dataclasses

import gguf
import numpy as np
import pytest
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import DType
from crossinfer.formats.ggml_types import ID_BY_STORAGE
from crossinfer.formats.tensors import StoredTensor
from crossinfer.graph.tolerance import row_error
from crossinfer.models.model import Model, load_model
from crossinfer.testing.storage import FORMATS


def dequantized(model: Model) -> Model:
    """The model with float32 weights, as the gguf package dequantizes them."""

    def convert(weight: StoredTensor) -> StoredTensor:
        kind = gguf.GGMLQuantizationType(ID_BY_STORAGE[weight.storage])
        rows = np.frombuffer(weight.data, np.uint8).reshape(weight.shape[0], -1)
        if len(weight.shape) == 1:
            rows = rows.reshape(1, -1)
        values = gguf.dequantize(rows, kind).astype(np.float32).reshape(weight.shape)
        return StoredTensor(weight.name, weight.shape, DType.F32, values.data.cast("B"))

    weights = {name: convert(weight) for name, weight in model.weights.items()}
    return dataclasses.replace(model, weights=weights)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-qwen3"])
@pytest.mark.parametrize("storage", FORMATS)
def test_logits_equal_those_of_dequantized_weights(
    name: str, storage: str, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models(name, storage))
    tokens = np.random.default_rng().integers(0, model.config.vocabulary, 12).tolist()
    with step_runner(model, [ReferenceDevice()]) as runner:
        stored = logits_of(runner, tokens)
    with step_runner(dequantized(model), [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens)
    assert row_error(stored, expected) < 1e-6
