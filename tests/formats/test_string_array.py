"""Arrays of strings over a file's bytes: like the list that was written."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.formats import string_array
from crossinfer.formats.string_array import StringArray


def array_of(elements: list[bytes]) -> StringArray:
    raw = b"".join(struct.pack("<Q", len(element)) + element for element in elements)
    ends = np.cumsum([8 + len(element) for element in elements], dtype=np.int64)
    return StringArray(memoryview(raw), ends)


STRINGS = st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.just("ü" * 200))


@given(STRINGS)
def test_it_is_what_was_written(strings: list[str]) -> None:
    made = array_of([string.encode() for string in strings])
    assert (len(made), made.tolist(), list(made)) == (len(strings), strings, strings)
    assert [made[i] for i in range(-len(strings), len(strings))] == strings * 2
    assert made[1:-1] == strings[1:-1]
    assert made == strings
    assert made != [*strings, "one more"]
    assert repr(made) == repr(strings)


def test_zeros_in_strings_do_not_move_them() -> None:
    strings = ["a", "\0" * 8, "b\0", "\0c", "", "d"]
    assert array_of([string.encode() for string in strings]).tolist() == strings


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_that_is_none(index: int) -> None:
    with pytest.raises(IndexError, match="3 strings, none of index"):
        array_of([b"a", b"b", b"c"])[index]


@pytest.mark.parametrize("at_once", [1, 2, 4096])
@pytest.mark.parametrize(
    ("elements", "bad"),
    [
        ([b"a", b"\xff"], 1),
        ([b"\xc3", b"\xbc"], 0),  # one character, cut between two strings
        ([b"a", b"b", b"\xe2\x82"], 2),
        ([b"a", "ü".encode(), b"c", b"\xfe", b"e"], 3),
    ],
)
def test_text_that_is_no_utf8(
    monkeypatch: pytest.MonkeyPatch, elements: list[bytes], bad: int, at_once: int
) -> None:
    monkeypatch.setattr(string_array, "_CHECKED_AT_ONCE", at_once)
    with pytest.raises(UnicodeDecodeError) as caught:
        array_of(elements)
    assert caught.value.start == bad
