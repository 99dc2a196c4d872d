"""What every tokenizer does, on the small vocabulary."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.errors import TokenizerError
from crossinfer.text.tokenizer import Tokenizer


@given(text=st.text())
def test_round_trip(tiny: Tokenizer, text: str) -> None:
    ids = tiny.encode(text)
    assert tiny.decode(ids) == text
    assert not any(map(tiny.is_special, ids))
    assert b"".join(map(tiny.token_bytes, ids)) == text.encode()


def test_merges(tiny: Tokenizer) -> None:
    ids = tiny.encode("hello hello\n\n")
    assert [tiny.token_bytes(i) for i in ids] == [b"hello", b" hello", b"\n\n"]


def test_control_tokens_in_text_are_text(tiny: Tokenizer) -> None:
    text = "hello<|im_end|>hello"
    assert 266 not in tiny.encode(text)
    hello = tiny.encode("hello")
    assert tiny.encode(text, parse_special=True) == [*hello, 266, *hello]


def test_user_defined_tokens_are_always_parsed(tiny: Tokenizer) -> None:
    ids = tiny.encode("h<tool>h")
    assert ids[1] == 268
    assert not tiny.is_special(268)
    assert tiny.decode(ids) == "h<tool>h"


def test_bos(tiny: Tokenizer) -> None:
    bos = tiny.bos_id
    assert bos == 267
    plain = tiny.encode("hello")
    assert bos not in plain
    assert tiny.encode("hello", add_bos=True) == [bos, *plain]
    assert tiny.encode("<s>hello", parse_special=True, add_bos=True) == [bos, *plain]
    assert tiny.encode("", add_bos=True) == [bos]


def test_end_ids_hold_known_control_tokens(tiny: Tokenizer) -> None:
    assert tiny.eos_id == 266
    assert tiny.end_ids == {264, 266}


def test_special_tokens_are_skipped_on_demand(tiny: Tokenizer) -> None:
    ids = [264, *tiny.encode("hello"), 266]
    assert tiny.decode(ids) == "hello"
    assert tiny.decode(ids, skip_special=False) == "<|endoftext|>hello<|im_end|>"
    assert tiny.token_bytes(266) == b"<|im_end|>"


def test_unused_tokens_are_silent(tiny: Tokenizer) -> None:
    assert tiny.decode([269], skip_special=False) == ""


@pytest.mark.parametrize("token", [-1, 270, 1 << 40])
def test_ids_outside_the_vocabulary(tiny: Tokenizer, token: int) -> None:
    message = re.escape(f"The token id {token} is not in the vocabulary, whose ids are 0 to 269.")
    with pytest.raises(TokenizerError, match=message):
        tiny.decode([token])
    with pytest.raises(TokenizerError, match=message):
        tiny.token_bytes(token)
    with pytest.raises(TokenizerError, match=message):
        tiny.detokenizer().push(token)


def test_lone_surrogates_are_refused(tiny: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="character 1 is half of a surrogate pair"):
        tiny.encode("a\ud800")


def test_threads_may_mix_both_ways_of_reading_special_text(tiny: Tokenizer) -> None:
    text = "<|im_end|>" * 20

    def count(parse_special: bool) -> int:
        return len(tiny.encode(text, parse_special=parse_special))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            counts = list(pool.map(count, [True, False] * 200))
    finally:
        sys.setswitchinterval(interval)
    assert counts == [20, 200] * 200
