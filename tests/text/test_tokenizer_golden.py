"""Tokenizers equal transformers' on the corpus of `make_tokenizer_golden`."""

from __future__ import annotations

import gzip
import json
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.tokenizer_texts import TEXTS

from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.pre_tokenizers import PRE_TOKENIZERS
from crossinfer.text.tokenizer import Tokenizer

FILES = sorted((Path(__file__).parents[1] / "golden" / "tokenizers").glob("*.json.gz"))
NAMES = [path.name.removesuffix(".json.gz") for path in FILES]
LOSSY = {"qwen2": "NFC", "mistral-spm": "\u2581", "gemma-3": "\u2581", "llama-spm": "\u2581"}
"""Tokenizers that normalize; texts that this changes don't come back."""


def read_golden(name: str) -> dict[str, Any]:
    """The content of a golden file."""
    path = Path(__file__).parents[1] / "golden" / "tokenizers" / f"{name}.json.gz"
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


@pytest.fixture(scope="module", params=NAMES)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One golden file, with its tokenizer under "tokenizer" and its texts under "inputs"."""
    content = read_golden(request.param)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in content["metadata"].items()}
    for name, dtype in (("token_type", np.int32), ("scores", np.float32)):
        if f"tokenizer.ggml.{name}" in metadata:
            array = np.array(metadata[f"tokenizer.ggml.{name}"], dtype)
            metadata[f"tokenizer.ggml.{name}"] = array
    inputs = content.get("own_texts", TEXTS)
    tokenizer = tokenizer_from_gguf(metadata)
    return {**content, "tokenizer": tokenizer, "inputs": inputs, "name": request.param}


def test_equals_transformers(golden: dict[str, Any]) -> None:
    tokenizer: Tokenizer = golden["tokenizer"]
    for text, expected in zip(golden["inputs"], golden["texts"], strict=True):
        assert tokenizer.encode(text) == expected, text


def test_equals_transformers_with_control_tokens(golden: dict[str, Any]) -> None:
    tokenizer: Tokenizer = golden["tokenizer"]
    for text, expected in zip(TEXTS, golden.get("parsed", []), strict=False):
        assert tokenizer.encode(text, parse_special=True) == expected, text
        assert tokenizer.encode_parts(text, str) == expected, text


def test_round_trip(golden: dict[str, Any]) -> None:
    tokenizer: Tokenizer = golden["tokenizer"]
    for text in golden["inputs"]:
        came_back = tokenizer.decode(tokenizer.encode(text), skip_special=False)
        if LOSSY.get(golden["name"]) == "NFC":
            assert came_back == unicodedata.normalize("NFC", text)
        else:
            assert came_back == text.replace(LOSSY.get(golden["name"], " "), " ")


def test_long_texts_take_about_linear_time(golden: dict[str, Any]) -> None:
    tokenizer: Tokenizer = golden["tokenizer"]
    for unit in ("a", "abcdefghijklmnopqrstuvwxyz0123456789", "=-", "日本語", "😀"):
        text = (unit * 100_000)[:100_000]
        start = time.perf_counter()
        ids = tokenizer.encode(text)
        assert time.perf_counter() - start < 10
        assert tokenizer.decode(ids) == text


def test_every_kind_of_rules_is_in_the_corpus() -> None:
    named = {"gpt-2", "smollm", "qwen2", "qwen35", "llama-bpe", "deepseek-llm", "deepseek-coder"}
    named |= {"deepseek-v3"}
    assert named <= set(NAMES)
    rules = [PRE_TOKENIZERS[name] for name in named]
    assert all(known in rules for known in PRE_TOKENIZERS.values())
