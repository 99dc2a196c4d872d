"""A small byte-level vocabulary, written as GGUF metadata."""

from __future__ import annotations

from typing import Any

import pytest
from tests.text.small_vocabularies import sentencepiece_metadata, tiny_metadata

from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.tokenizer import Tokenizer


@pytest.fixture
def metadata() -> dict[str, Any]:
    """Metadata of the small vocabulary, for a test to change."""
    return tiny_metadata()


@pytest.fixture(scope="session")
def tiny() -> Tokenizer:
    """The small vocabulary's tokenizer."""
    return tokenizer_from_gguf(tiny_metadata())


@pytest.fixture(scope="session")
def tiny_sentencepiece() -> Tokenizer:
    """The tokenizer of the small SentencePiece vocabulary."""
    return tokenizer_from_gguf(sentencepiece_metadata())
