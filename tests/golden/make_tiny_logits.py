"""Makes tiny_logits.npz: what `transformers` computes for the tiny test models in float32.

Needs torch and transformers (made with torch 2.13 and transformers 5.24), and crossinfer on the
path:

    PYTHONPATH=src python tests/golden/make_tiny_logits.py

For each case NAME in CASES the file holds `NAME.tokens` (int32 [T]), `NAME.logits` (float32
[T, vocabulary], the logits after each token) and `NAME.sha256` (of the model's safetensors file,
as text, so that a changed generator is noticed). The models are made again by
`write_model(model, "f32", path, seed=SEED, container="safetensors", **overrides)`.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.huggingface import SINGLE_FILE
from crossinfer.testing.models import write_model
from crossinfer.testing.shapes import SHAPES

SEED = 7
OUTPUT = Path(__file__).with_name("tiny_logits.npz")

# Scaled cases run past the 32 tokens of their original context.
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "tiny-llama": ("tiny-llama", {}, 40),
    "tiny-llama-linear": ("tiny-llama", {"rope_scaling": "linear"}, 100),
    "tiny-llama-llama3": ("tiny-llama", {"rope_scaling": "llama3"}, 100),
    "tiny-llama-yarn": ("tiny-llama", {"rope_scaling": "yarn"}, 100),
    "tiny-qwen2": ("tiny-qwen2", {}, 40),
    "tiny-qwen3": ("tiny-qwen3", {}, 40),
}


def _logits(folder: Path, tokens: Array) -> Array:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        result = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
    logits: Array = result.numpy().astype(np.float32)
    return logits


def main() -> None:
    """Make every case's model, run it, and write OUTPUT."""
    arrays: dict[str, Any] = {}
    for case, (model, overrides, length) in CASES.items():
        generator = np.random.Generator(np.random.PCG64(SEED))
        tokens = generator.integers(0, SHAPES[model].vocab_size, length, dtype=np.int32)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_model(model, "f32", folder, seed=SEED, container="safetensors", **overrides)
            weights = (folder / SINGLE_FILE).read_bytes()
            logits = _logits(folder, tokens)
        arrays[f"{case}.tokens"] = tokens
        arrays[f"{case}.logits"] = logits
        arrays[f"{case}.sha256"] = np.array(hashlib.sha256(weights).hexdigest())
        print(f"{case}: {logits.shape}, standard deviation {logits.std():.2f}")
    np.savez_compressed(OUTPUT, **arrays)
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
