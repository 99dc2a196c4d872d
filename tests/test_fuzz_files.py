"""A little of what `python -m tests.fuzz_files` does for long."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from tests.fuzz_files import FindingError, fuzz

from crossinfer.formats import safetensors
from crossinfer.models.keys import Keys

_SECONDS = 8


def test_changed_files_open_or_are_refused(tmp_path: Path) -> None:
    cases, accepted = fuzz(tmp_path, _SECONDS, secrets.randbits(48))
    assert 0 < accepted < cases


@pytest.mark.parametrize(
    ("place", "name", "fault"),
    [
        (safetensors, "_is_size", lambda _: True),
        (Keys, "number", lambda self, key, default=None: self.get(key) or default),
    ],
    ids=["a shape of anything", "a number of anything"],
)
def test_a_reader_that_trusts_its_input_is_found_out(
    place: object, name: str, fault: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, fault)
    with pytest.raises(FindingError, match="case"):
        fuzz(tmp_path, 60, 0)
