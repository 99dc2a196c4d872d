"""SentencePiece vocabularies in GGUF metadata: merges by score, bytes, spaces, control tokens."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text.small_vocabularies import sentencepiece_metadata

from crossinfer.core.errors import TokenizerError
from crossinfer.text.gguf_tokenizer import tokenizer_from_gguf
from crossinfer.text.sentencepiece import Pieces, SentencePieceEncoder
from crossinfer.text.tokenizer import Tokenizer

TURN = 273


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, add_bos=False)]


def naive(text: str, scores: dict[str, float]) -> list[str]:
    """Merges the best pair, the leftmost of equals, until none is left."""
    parts = list(text)
    while True:
        pairs = [
            (-scores[left + right], at)
            for at, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in scores
        ]
        if not pairs:
            return parts
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


VOCABULARY = st.dictionaries(
    st.text(st.sampled_from("ab\u2581"), min_size=1, max_size=4),
    st.integers(-3, 0).map(float),
    max_size=12,
)


@given(vocabulary=VOCABULARY, text=st.text(st.sampled_from("ab "), max_size=24))
def test_equals_merging_one_pair_after_another(vocabulary: dict[str, float], text: str) -> None:
    scores = {**dict.fromkeys("ab\u2581", -9.0), **vocabulary}
    ids = {token: i for i, token in enumerate(scores)}
    encoder = SentencePieceEncoder(
        Pieces(ids, list(scores.values()), (), None), control={}, always={}, space_prefix=False
    )
    expected = [ids[part] for part in naive(text.replace(" ", "\u2581"), scores)]
    assert encoder.encode(text, parse_special=False, at_start=True) == expected


def test_merges_follow_the_scores(tiny_sentencepiece: Tokenizer) -> None:
    assert pieces(tiny_sentencepiece, "hello hello") == ["\u2581hello", "\u2581hello"]
    assert pieces(tiny_sentencepiece, "aaaaa") == ["\u2581", "aa", "aaa"]


def test_bytes_spell_the_rest(tiny_sentencepiece: Tokenizer) -> None:
    assert pieces(tiny_sentencepiece, "\u00e9") == ["\u2581", "<0xC3>", "<0xA9>"]


@given(text=st.text().filter(lambda text: "\u2581" not in text))
def test_round_trip(tiny_sentencepiece: Tokenizer, text: str) -> None:
    ids = tiny_sentencepiece.encode(text)
    assert tiny_sentencepiece.decode(ids) == text
    rest = tiny_sentencepiece.decode(ids, continued=True)
    assert rest == (" " + text if text and not text.startswith("<turn>") else text)


def test_bos_and_control_tokens(tiny_sentencepiece: Tokenizer) -> None:
    assert tiny_sentencepiece.encode("a")[0] == 1
    assert tiny_sentencepiece.encode("<s>a", parse_special=True)[:2] != [1, 1]
    assert 2 not in tiny_sentencepiece.encode("a</s>")
    assert tiny_sentencepiece.encode("a</s>a", parse_special=True).count(2) == 1
    assert tiny_sentencepiece.end_ids == {2}
    assert tiny_sentencepiece.encode("a<turn>a", add_bos=False)[2] == TURN


def test_the_space_goes_before_every_stretch_of_text() -> None:
    metadata = sentencepiece_metadata()
    prefixed = tokenizer_from_gguf(metadata)
    assert pieces(prefixed, "a<turn>a") == ["\u2581", "a", "<turn>", "\u2581", "a"]
    metadata["tokenizer.ggml.add_space_prefix"] = False
    bare = tokenizer_from_gguf(metadata)
    assert pieces(bare, "a<turn> a") == ["a", "<turn>", "\u2581", "a"]
    assert bare.decode(bare.encode(" a")) == " a"


def test_special_ids_have_defaults_by_name() -> None:
    metadata = sentencepiece_metadata()
    for name in ("bos", "eos", "unknown"):
        del metadata[f"tokenizer.ggml.{name}_token_id"]
    tokenizer = tokenizer_from_gguf(metadata)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)


def test_without_bytes_one_unknown_token_stands_for_a_run() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata(byte_tokens=False))
    assert pieces(tokenizer, "a\u00e9\u00e9a") == ["\u2581", "a", "<unk>", "a"]


def test_nothing_to_spell_with() -> None:
    pieces_without = Pieces({"a": 0}, [0.0], (), None)
    encoder = SentencePieceEncoder(pieces_without, control={}, always={}, space_prefix=False)
    with pytest.raises(TokenizerError, match="cannot spell 'b'"):
        encoder.encode("ab", parse_special=False, at_start=True)
