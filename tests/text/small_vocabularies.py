"""Small vocabularies as GGUF metadata: byte-level BPE and SentencePiece."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossinfer.text.byte_level import BYTE_TO_CHAR

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ hello", "Ġ Ġ", "Ċ Ċ"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]

PIECES = ["▁", "h", "e", "l", "o", "a", "ll", "he", "hell", "hello", "▁hello", "▁▁", "aa", "aaa"]
"""In the order of their scores, but for the characters, which score least."""


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


def sentencepiece_metadata(*, byte_tokens: bool = True) -> dict[str, Any]:
    """<unk>, <s>, </s>, 256 bytes from 3 (if wanted), PIECES from 259, <turn> user-defined."""
    special = ["<unk>", "<s>", "</s>"]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)] if byte_tokens else []
    tokens = [*special, *spelled, *PIECES, "<turn>"]
    types = [2, 3, 3, *[6] * len(spelled), *[1] * len(PIECES), 4]
    scores = [0.0] * (3 + len(spelled)) + [
        -100.0 if len(piece) == 1 else -float(rank) for rank, piece in enumerate(PIECES)
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.scores": np.array([*scores, 0.0], np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
