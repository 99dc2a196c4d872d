"""Logits of small models against transformers' (tests/golden/make_tiny_logits.py)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tests.golden.make_tiny_logits import CASES, OUTPUT, SEED
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.formats.huggingface import SINGLE_FILE
from crossinfer.graph.tolerance import row_error


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("container", ["safetensors", "gguf"])
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_logits_equal_transformers(
    case: str, container: str, device: str, tiny_models: TinyModels
) -> None:
    model, overrides, _ = CASES[case]
    with np.load(OUTPUT) as golden:
        tokens, expected = golden[f"{case}.tokens"], golden[f"{case}.logits"]
        digest = str(golden[f"{case}.sha256"])
    folder = tiny_models(model, "f32", "safetensors", SEED, **overrides)
    assert _sha256(folder / SINGLE_FILE) == digest, "the model generator changed"
    path = folder if container == "safetensors" else tiny_models(model, seed=SEED, **overrides)
    with LLM(path, device) as llm:
        logits = llm.logits(tokens.tolist())
    assert logits.dtype == np.float32
    assert row_error(logits, expected) < 1e-4


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
