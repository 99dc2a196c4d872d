"""A small byte-level vocabulary, written as GGUF metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossinfer.text.byte_level import BYTE_TO_CHAR
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.tokenizer import Tokenizer

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ hello", "Ġ Ġ", "Ċ Ċ"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]


def tiny_metadata() -> dict[str, Any]:
    """256 bytes, a few merges, control tokens from 264, <tool> 268 user-defined, 269 unused."""
    bytes_first = [BYTE_TO_CHAR[byte] for byte in range(256)]
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*bytes_first, *merged, *CONTROL, "<tool>", "[PAD0]"]
    types = [1] * (256 + len(merged)) + [3] * len(CONTROL) + [4, 5]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


@pytest.fixture
def metadata() -> dict[str, Any]:
    """Metadata of the small vocabulary, for a test to change."""
    return tiny_metadata()


@pytest.fixture(scope="session")
def tiny() -> Tokenizer:
    """The small vocabulary's tokenizer."""
    return tokenizer_from_gguf(tiny_metadata())
