"""Every kind of bad input ends in one sentence, in bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from tests.robustness_table import PAGE, Kind, kinds, page

_KINDS = list(kinds())
_SECONDS = 1.0
_BYTES = 32 << 20
_CHARACTERS = 700


def test_kinds_have_names_of_their_own() -> None:
    names = [(kind.area, kind.kind) for kind in _KINDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: f"{kind.area}: {kind.kind}")
def test_one_sentence_soon_and_in_little_memory(kind: Kind, tmp_path: Path) -> None:
    # What is loaded only once does not count, nor does what else the machine does.
    seconds = min(_seconds(kind, tmp_path) for _ in range(2))
    tracemalloc.start()
    try:
        seen = kind.shown(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen.startswith(("Error: ", "Warning: ", "Note: "))
    assert "\n" not in seen
    assert len(seen) < _CHARACTERS
    assert seconds < _SECONDS
    assert peak < _BYTES


def _seconds(kind: Kind, folder: Path) -> float:
    start = time.perf_counter()
    kind.shown(folder)
    return time.perf_counter() - start


def test_the_committed_table_is_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.robustness_table`"
