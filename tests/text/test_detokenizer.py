"""Streaming: pieces join to the whole, and no character is split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossinfer.text.tokenizer import Tokenizer

LEADS = st.sampled_from([0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0x80, 0x9F, 0xBF, 0xFF])
IDS = st.lists(LEADS | st.integers(0, 269))


@given(ids=IDS, skip=st.booleans())
def test_pieces_join_to_the_whole(tiny: Tokenizer, ids: list[int], skip: bool) -> None:
    stream = tiny.detokenizer(skip_special=skip)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == tiny.decode(ids, skip_special=skip)


@given(text=st.text())
def test_valid_text_never_shows_a_replacement(tiny: Tokenizer, text: str) -> None:
    text = text.replace("\ufffd", "")
    stream = tiny.detokenizer()
    pieces = [stream.push(byte) for byte in text.encode()]
    assert "\ufffd" not in "".join(pieces)
    assert stream.finish() == ""
    assert [piece for piece in pieces if piece] == list(text)


def test_invalid_bytes_come_out_once_they_cannot_become_valid(tiny: Tokenizer) -> None:
    stream = tiny.detokenizer()
    assert stream.push(0xF0) == ""
    assert stream.push(0x9F) == ""
    assert stream.push(ord("a")) == "\ufffda"
    assert stream.push(0xFF) == "\ufffd"
    assert stream.push(0xE2) == ""
    assert stream.finish() == "\ufffd"
