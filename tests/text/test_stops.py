"""Stop strings, against the whole text cut at the first one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.errors import RequestError
from crossinfer.text.stops import StopFilter

ALPHABET = st.text(st.sampled_from("ab😀"), max_size=4)


@given(pieces=st.lists(ALPHABET, max_size=12), stops=st.lists(ALPHABET.filter(bool), max_size=4))
def test_equals_the_whole_text_cut(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    starts = [at for stop in stops if (at := whole.find(stop)) >= 0]
    expected = whole[: min(starts)] if starts else whole

    stream = StopFilter(stops)
    emitted = ""
    for piece in pieces:
        emitted += stream.push(piece)
        assert expected.startswith(emitted)
    emitted += stream.finish()
    assert emitted == expected
    assert stream.stopped == bool(starts)


def test_held_back_text_is_delivered() -> None:
    stream = StopFilter(["END"])
    assert [stream.push("a"), stream.push("E"), stream.push("N")] == ["a", "", ""]
    assert stream.push("x") == "ENx"
    assert stream.push("yEN") == "y"
    assert stream.finish() == "EN"
    assert not stream.stopped


def test_nothing_after_a_stop() -> None:
    stream = StopFilter(["\n\n"])
    assert stream.push("one\n") == "one"
    assert stream.push("\ntwo") == ""
    assert stream.stopped
    assert stream.push("three") == ""
    assert stream.finish() == ""


def test_the_stop_that_starts_first_wins() -> None:
    stream = StopFilter(["bc", "abcd"])
    assert stream.push("xabc") == "x"
    assert not stream.stopped
    assert stream.push("d") == ""
    assert stream.stopped
    stream = StopFilter(["bc", "abcd"])
    assert stream.push("xabc") + stream.push("e") == "xa"
    assert stream.stopped


def test_unstopped_text_is_not_kept() -> None:
    stream = StopFilter(["zz"])
    for _ in range(1000):
        assert stream.push("y" * 1000) == "y" * 1000


@pytest.mark.parametrize("stops", [[""], ["a", ""], "abc", [1]])
def test_bad_stop_strings(stops: list[str]) -> None:
    with pytest.raises(RequestError, match=r"[Ss]top string"):
        StopFilter(stops)
