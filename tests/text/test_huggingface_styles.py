"""tokenizer.json beyond byte-level: SentencePiece's styles, and tokens that swallow white space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.text.small_vocabularies import PIECES
from tokenizers import decoders, models, normalizers, pre_tokenizers

from crossinfer.core.errors import TokenizerError
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.huggingface_tokenizer import tokenizer_from_huggingface
from crossinfer.text.tokenizer import Tokenizer

SPACE = "\u2581"
SPECIAL = (
    tokenizers.AddedToken("<left>", special=True, lstrip=True, normalized=False),
    tokenizers.AddedToken("<right>", special=True, rstrip=True, normalized=False),
    tokenizers.AddedToken("<both>", special=True, lstrip=True, rstrip=True, normalized=False),
    tokenizers.AddedToken("<none>", special=True, normalized=False),
)


def library() -> Any:
    """BPE with byte tokens, without normalizer, pre-tokenizer and decoder."""
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    names = ["<unk>", *spelled, *PIECES]
    merges = [("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), (SPACE, "hello")]
    result = tokenizers.Tokenizer(
        models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=merges,
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    result.add_special_tokens(list(SPECIAL))
    result.add_tokens([tokenizers.AddedToken(SPACE * 3, normalized=False)])
    return result


def prepending() -> Any:
    """As Llama 2 and Mistral have it."""
    result = library()
    result.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    result.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return result


def first_only() -> Any:
    """As transformers writes them since: a space only at the very beginning."""
    result = library()
    result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    result.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return result


def without_prefix() -> Any:
    """As Gemma has it."""
    result = library()
    result.normalizer = normalizers.Replace(" ", SPACE)
    result.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return result


STYLES = {"prepend": prepending(), "first": first_only(), "none": without_prefix()}
PARTS = ["<left>", "<right>", "<both>", "<none>", " ", "\n", "\u3000", "hello", "h", "\u00e9", "x"]
TEXT = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@pytest.fixture(scope="module", params=STYLES)
def style(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(the library's tokenizer, ours)"""
    reference = STYLES[request.param]
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    reference.save(str(path))
    return reference, tokenizer_from_huggingface(path, config={})


@given(text=TEXT)
def test_equals_the_library(style: tuple[Any, Tokenizer], text: str) -> None:
    reference, tokenizer = style
    for parse in (False, True):
        reference.encode_special_tokens = not parse
        expected = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, parse_special=parse) == expected
    assert tokenizer.encode_parts(text, str) == expected


@given(text=st.text() | TEXT)
def test_round_trip(style: tuple[Any, Tokenizer], text: str) -> None:
    reference, tokenizer = style
    text = text.replace(SPACE, "_")
    if isinstance(reference.pre_tokenizer, pre_tokenizers.Metaspace):
        text = text.lstrip(" ")  # the library takes a space that is there for the one it adds
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert reference.decode(ids) == text


def test_added_spaces_are_spaces(style: tuple[Any, Tokenizer]) -> None:
    _, tokenizer = style
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == b"   "


def test_a_metaspace_decoder(tmp_path: Path) -> None:
    reference = first_only()
    reference.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_huggingface(tmp_path / "tokenizer.json", config={})
    assert tokenizer.decode(tokenizer.encode("hello hello")) == "hello hello"


def test_a_byte_without_a_token_is_named(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.tokens"][3] = "spare"
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"
    with pytest.raises(TokenizerError, match="no token for the byte 0x03"):
        tokenizer.encode("a\x03")
