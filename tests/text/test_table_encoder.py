"""The table of merges gives what the library gives, and is kept and found again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.tokenizer_texts import TEXTS

from crossinfer.core.cache import write_entry
from crossinfer.core.errors import TokenizerError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.text import gguf_tokenizer
from crossinfer.text.byte_level import BYTE_TO_CHAR
from crossinfer.text.encoders import Encoder, LibraryEncoder
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.gguf_vocabulary import CONTROL, NORMAL, USER_DEFINED
from crossinfer.text.merge_table import MergeTable, pack_table
from crossinfer.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from crossinfer.text.table_encoder import TableEncoder

ADDED = {"<|im_end|>": CONTROL, "<|im|>": CONTROL, "<tool>": USER_DEFINED, "aé": USER_DEFINED}
# Few letters, so that merges meet; what rules cut at; added tokens, whole and in parts.
ALPHABET = [*"aabbé 1\n\t'", "  ", "e\u0301", "한", "😀", *ADDED, "<|im_", "|>", "'ll"]
texts = st.lists(st.sampled_from(ALPHABET), max_size=24).map("".join)


def vocabulary(seed: int, *, without: int | None = None) -> tuple[list[str], list[str]]:
    """Tokens and merges of a random byte-level BPE: the merges of what texts above consist of."""
    chooser = random.Random(seed)
    tokens = [char for byte, char in BYTE_TO_CHAR.items() if byte != without]
    spelled = "".join(ALPHABET).encode()
    parts = sorted({BYTE_TO_CHAR[byte] for byte in spelled if byte != without})
    merges: list[str] = []
    while len(merges) < 300:
        left, right = chooser.choice(parts), chooser.choice(parts)
        merges.append(f"{left} {right}")  # some of them twice
        if left + right not in tokens:
            tokens.append(left + right)
            parts.append(left + right)
    tokens.extend(ADDED)
    return tokens, merges


def encoders(rules: PreTokenizer, seed: int, **options: Any) -> tuple[TableEncoder, LibraryEncoder]:
    tokens, merges = vocabulary(seed, **options)
    types = np.array([ADDED.get(token, NORMAL) for token in tokens])
    library = LibraryEncoder(*gguf_tokenizer._library(tokens, merges, types, rules))

    def build() -> Encoder:
        raise AssertionError("the table was to do it")

    table = MergeTable(pack_table(tokens, merges, whole_words=rules.ignore_merges))
    added = {token: tokens.index(token) for token in ADDED}
    control = frozenset(i for token, i in added.items() if ADDED[token] == CONTROL)
    return TableEncoder(table, tokens, rules, added=added, control=control, build=build), library


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_ids_are_those_of_the_library(name: str) -> None:
    table, library = encoders(PRE_TOKENIZERS[name], seed=1)
    table._left = 1 << 60

    @given(texts, st.booleans())
    def check(text: str, parse_special: bool) -> None:
        expected = library.encode(text, parse_special=parse_special, at_start=True)
        assert table.encode(text, parse_special=parse_special, at_start=True) == expected

    check()


@pytest.mark.parametrize("seed", range(5))
def test_random_vocabularies(seed: int) -> None:
    table, library = encoders(PRE_TOKENIZERS["llama-bpe"], seed)
    chooser = random.Random(seed)
    for _ in range(60):
        text = "".join(chooser.choices(ALPHABET, k=12))
        expected = library.encode(text, parse_special=True, at_start=True)
        assert table.encode(text, parse_special=True, at_start=True) == expected, text


def test_a_byte_without_a_token_is_refused() -> None:
    table, _ = encoders(PRE_TOKENIZERS["gpt-2"], seed=2, without=0xF0)
    with pytest.raises(TokenizerError, match="no token for the byte 0xF0"):
        table.encode("a 😀", parse_special=False, at_start=True)


@pytest.mark.parametrize("at", [0, 1], ids=["table", "library"])
def test_a_byte_without_a_token_is_refused_as_normalized(at: int) -> None:
    encoder = encoders(PRE_TOKENIZERS["qwen2"], seed=2, without=0xC3)[at]
    with pytest.raises(TokenizerError, match="no token for the byte 0xC3"):
        encoder.encode("e\u0301", parse_special=False, at_start=True)


@pytest.mark.parametrize("text", ["a" * 9000, "b " * 40 + "a" * 65], ids=["much text", "long word"])
def test_what_takes_the_table_long_goes_to_the_library(text: str) -> None:
    table, library = encoders(PRE_TOKENIZERS["gpt-2"], seed=3)
    built = []

    def build() -> Encoder:
        built.append(library)
        return library

    table._build = build
    table.encode("ab ab", parse_special=False, at_start=True)
    assert not built
    expected = library.encode(text, parse_special=False, at_start=True)
    for _ in range(2):
        assert table.encode(text, parse_special=False, at_start=True) == expected
    assert built == [library]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path))
    return tmp_path / "v1" / "vocabularies"


def test_a_large_vocabulary_is_built_once(
    smollm2_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = GGUFFile.open(smollm2_path).metadata
    first = tokenizer_from_gguf(metadata)
    (kept,) = folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(gguf_tokenizer, "_library", None)  # whoever builds it fails
        again = tokenizer_from_gguf(metadata)
        for text in (text for text in TEXTS if len(text) < 500):
            again._encoder._left = 1 << 60  # type: ignore[attr-defined]
            for parse_special in (True, False):
                expected = first.encode(text, parse_special=parse_special)
                try:
                    assert again.encode(text, parse_special=parse_special) == expected, text
                except TypeError:
                    assert max(map(len, text.split())) > 10  # a long word asks for the library
    assert (again.end_ids, again.special_texts) == (first.end_ids, first.special_texts)
    assert list(folder.iterdir()) == [kept]


@pytest.mark.parametrize("damage", ["cut", "changed", "other version", "foreign"])
def test_a_damaged_table_is_made_again(smollm2_path: Path, folder: Path, damage: str) -> None:
    metadata = GGUFFile.open(smollm2_path).metadata
    expected = tokenizer_from_gguf(metadata).encode("Why is the sky blue?")
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    if damage == "cut":
        kept.write_bytes(whole[:-9])
    elif damage == "changed":
        kept.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    else:  # a checksum that fits
        write_entry(kept, b"" if damage == "foreign" else whole[32:-8])
    tokenizer = tokenizer_from_gguf(metadata)
    assert isinstance(tokenizer._encoder, LibraryEncoder)
    assert tokenizer.encode("Why is the sky blue?") == expected
    assert kept.read_bytes() == whole
    assert isinstance(tokenizer_from_gguf(metadata)._encoder, TableEncoder)
