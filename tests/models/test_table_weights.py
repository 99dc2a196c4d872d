"""Models in the types that are converted at load: their results, notes and warnings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.small_model import small_gguf, source
from tests.formats.test_table_formats import random_blocks
from tests.steps import logits_of, step_runner

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.table_formats import TABLE_FORMATS, TableFormat
from crossinfer.formats.tensors import StoredTensor, TensorSource
from crossinfer.graph.tolerance import row_error
from crossinfer.models.model import Model, load_model

WIDE = 256
MATRICES = {
    "token_embd": (16, WIDE),
    "blk.0.attn_q": (64, WIDE),
    "blk.0.attn_k": (32, WIDE),
    "blk.0.attn_v": (32, WIDE),
    "blk.0.ffn_gate": (WIDE, WIDE),
    "blk.0.ffn_up": (WIDE, WIDE),
    "blk.0.ffn_down": (WIDE, WIDE),
}
PLAIN = {
    "blk.0.attn_output": (WIDE, 64),
    "blk.0.attn_norm": (WIDE,),
    "blk.0.ffn_norm": (WIDE,),
    "output_norm": (WIDE,),
}


def _once(blocks: Array) -> Callable[[], list[Array]]:
    return lambda: [blocks]


def model_in(storage: TableFormat, folder: Path) -> Model:
    """A model whose matrices are random blocks, small enough for finite results."""
    changed: dict[str, TensorSource | None] = {}
    for seed, (name, shape) in enumerate(MATRICES.items()):
        blocks = random_blocks(storage, shape[0] * WIDE // storage.block_elements, seed)
        if storage.label == "mxfp4":
            blocks[:, 0] = 118
        if storage.label == "nvfp4":
            blocks[:, :4] = 20
        full = f"{name}.weight"
        changed[full] = TensorSource(full, shape, storage, _once(blocks))
    for name, size in PLAIN.items():
        full = f"{name}.weight"
        changed[full] = source(full, np.full(size, 1 / 64, np.float32))
    sizes = {
        "llama.embedding_length": np.uint32(WIDE),
        "llama.feed_forward_length": np.uint32(WIDE),
        "llama.attention.key_length": np.uint32(16),
    }
    return load_model(small_gguf(folder, sizes, changed))


def dequantized(model: Model) -> Model:
    def widened(weight: StoredTensor) -> StoredTensor:
        data = np.ascontiguousarray(weight.to_float32()).reshape(-1).data.cast("B")
        return StoredTensor(weight.name, weight.shape, DType.F32, data)

    weights = {name: widened(weight) for name, weight in model.weights.items()}
    return dataclasses.replace(model, weights=weights)


@pytest.mark.parametrize("storage", TABLE_FORMATS, ids=lambda storage: storage.label)
def test_logits_are_those_of_the_values(storage: TableFormat, tmp_path: Path) -> None:
    model = model_in(storage, tmp_path)
    tokens = list(range(12))
    with step_runner(model, [ReferenceDevice()]) as runner:
        stored = logits_of(runner, tokens)
    with step_runner(dequantized(model), [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens)
    assert row_error(stored, expected) < 1e-6
    (note,) = model.notes
    assert f"7 {storage.label.upper()} tensors loaded as " in note
    assert ("without loss" in note) is storage.exact
    wide = isinstance(model.weights["model.embed_tokens.weight"].loaded_as, DType)
    assert model.warnings == ((note,) if wide else ())
