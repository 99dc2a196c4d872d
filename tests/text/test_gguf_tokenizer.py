"""Tokenizers from GGUF metadata: equal to transformers', and plain words for bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.tokenizer_texts import TEXTS
from tests.text.test_tokenizer_golden import read_golden

from crossinfer.core.errors import TokenizerError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf


def assert_golden(name: str, path: Path) -> None:
    """The whole vocabulary cuts the texts as the small one of the golden file does."""
    golden = read_golden(name)
    tokenizer = tokenizer_from_gguf(GGUFFile.open(path).metadata)
    tokens = golden["metadata"]["tokens"]
    for text, expected in zip(TEXTS, golden["texts"], strict=True):
        ids = tokenizer.encode(text)
        assert [tokenizer.token_text(i) for i in ids] == [tokens[i] for i in expected], text


def test_smollm2_equals_transformers(smollm2_path: Path) -> None:
    assert_golden("smollm", smollm2_path)


@pytest.mark.slow
def test_qwen_equals_transformers(qwen_coder_path: Path) -> None:
    assert_golden("qwen2", qwen_coder_path)


def test_smollm2_special_ids(smollm2_path: Path) -> None:
    tokenizer = tokenizer_from_gguf(GGUFFile.open(smollm2_path).metadata)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert tokenizer.end_ids == {0, 2}
    assert tokenizer.vocab_size == 49152
    assert tokenizer.encode("a")[0] != tokenizer.bos_id


def test_pre_tokenizers_split_digits_differently() -> None:
    from crossinfer.text.pre_tokenizers import PRE_TOKENIZERS

    def words(name: str) -> list[str]:
        text = "x 12345's"
        pieces = PRE_TOKENIZERS[name].build().pre_tokenize_str(text)
        return [text[start:end] for _, (start, end) in pieces]

    assert words("gpt-2") == ["x", " 12345", "'s"]
    assert words("smollm") == ["x", " ", "1", "2", "3", "4", "5", "'s"]
    assert words("qwen2") == ["x", " ", "1", "2", "3", "4", "5", "'s"]
    assert words("llama-bpe") == ["x", " ", "123", "45", "'s"]


def test_unknown_pre_tokenizer_warns(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.pre"] = "from-the-future"
    with pytest.warns(UserWarning, match="pre-tokenizer 'from-the-future' is not known"):
        tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("hello 123")) == "hello 123"


def test_llama_bpe_takes_whole_words_and_adds_bos(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.pre"] = "llama-bpe"
    del metadata["tokenizer.ggml.add_bos_token"]
    # A token that no merge makes, which only ignore_merges can find.
    metadata["tokenizer.ggml.tokens"].append("whole")
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], 1)
    assert tokenizer_from_gguf(metadata).encode("whole") == [267, 270]
    metadata["tokenizer.ggml.pre"] = "gpt-2"
    assert len(tokenizer_from_gguf(metadata).encode("whole")) == 5


def test_eot_ends_a_turn(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.eot_token_id"] = np.uint32(65)
    assert tokenizer_from_gguf(metadata).end_ids == {65, 264, 266}


def test_end_token_names_count_only_as_control_tokens(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.token_type"][264] = 1
    assert tokenizer_from_gguf(metadata).end_ids == {266}


def test_byte_tokens(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.tokens"][269] = "<0xE9>"
    metadata["tokenizer.ggml.token_type"][269] = 6
    assert tokenizer_from_gguf(metadata).token_bytes(269) == b"\xe9"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "bert", "is 'bert'; supported are byte-level BPE"),
        ("model", None, "is None; supported are"),
        ("tokens", None, "tokenizer.ggml.tokens is missing"),
        ("merges", [], "tokenizer.ggml.merges is missing, empty"),
        ("merges", ["h e", "h zzz"], "Entry 1 of tokenizer.ggml.merges, 'h zzz'"),
        ("merges", ["he"], "Entry 0 of tokenizer.ggml.merges"),
        ("token_type", np.ones(3, np.int32), "has 3 entries for 270 tokens"),
        ("eos_token_id", 270, "names 270 as a special token"),
        ("bos_token_id", -1, "bos_token_id names -1 as a special token"),
    ],
)
def test_bad_metadata(metadata: dict[str, Any], key: str, value: Any, message: str) -> None:
    metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(TokenizerError) as caught:
        tokenizer_from_gguf(metadata)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["<0x-1>", "<0xZZ>", "<0x123>", "byte"])
def test_malformed_byte_tokens(metadata: dict[str, Any], text: str) -> None:
    metadata["tokenizer.ggml.tokens"][269] = text
    metadata["tokenizer.ggml.token_type"][269] = 6
    with pytest.raises(TokenizerError, match="Token 269 is marked as a byte"):
        tokenizer_from_gguf(metadata)
