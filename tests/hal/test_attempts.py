"""Attempts that end the process, and those that don't."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from crossinfer.hal.attempts import Attempt, crashed_attempts
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.verdicts import Finding, VerdictStore

GPU = DeviceInfo("vulkan", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
DIES = """
    import os, signal, sys
    from pathlib import Path
    from crossinfer.hal.info import DeviceInfo, DeviceKind
    from crossinfer.hal.verdicts import Finding, VerdictStore
    gpu = DeviceInfo("vulkan", DeviceKind.DISCRETE_GPU, "a card", "driver 1.2")
    store = VerdictStore(Path(sys.argv[1]))
    with store.attempt() as attempt:
        attempt.note(store.note_of(gpu, [Finding("innocent")]))
        attempt.note(store.note_of(gpu, [Finding("a"), Finding("b", shape="x 1x2")]))
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def die(path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(DIES), str(path)]
    assert subprocess.run(command, check=False).returncode != 0


def test_the_second_crash_bars_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    VerdictStore(path).record(GPU, "c", passed=True)
    die(path)
    for store in (VerdictStore(path), VerdictStore(path)):  # somebody may have killed it
        assert store.find(GPU, "a") is store.find(GPU, "b", "x 1x2") is None
        assert store.ended_once(GPU, "a")
        assert store.ended_once(GPU, "b", "x 1x2")
        assert [verdict.kernel for verdict in store.all()] == ["c"]
    die(path)
    for store in (VerdictStore(path), VerdictStore(path)):  # and it is kept
        assert store.is_barred(GPU, "a")
        assert store.is_barred(GPU, "b", "x 1x2")
        assert store.find(GPU, "innocent") is store.find(GPU, "b") is None
        assert not store.is_barred(GPU, "c")
        verdict = store.find(GPU, "a")
        assert verdict is not None
        assert verdict.reason == "the process ended twice while it was tried"
    assert list((tmp_path / "attempts").iterdir()) == []


def test_what_passes_after_a_crash_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    die(path)
    VerdictStore(path).record(GPU, "a", passed=True)
    assert not VerdictStore(path).ended_once(GPU, "a")
    die(path)
    assert not VerdictStore(path).is_barred(GPU, "a")
    assert VerdictStore(path).is_barred(GPU, "b", "x 1x2")


def test_an_attempt_that_goes_on_or_ends_well_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    store = VerdictStore(path)
    with store.attempt() as attempt:
        attempt.note(store.note_of(GPU, [Finding("a")]))
        assert VerdictStore(path).all() == []
        assert len(list((tmp_path / "attempts").iterdir())) == 1
    attempt = store.attempt()
    attempt.note(store.note_of(GPU, [Finding("a")]))
    attempt.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert VerdictStore(path).all() == []
    assert list((tmp_path / "attempts").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[7]", b'"x"', b"\xff"])
def test_a_note_that_cannot_be_read_is_dropped(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "attempts"
    folder.mkdir()
    (folder / "x.attempt").write_bytes(content)
    assert VerdictStore(tmp_path / "verdicts.json").all() == []
    assert list(folder.iterdir()) == []


def test_without_a_folder_nothing_is_noted(tmp_path: Path) -> None:
    with VerdictStore(None).attempt() as attempt:
        attempt.note(b"x")
    with Attempt(tmp_path / "missing" / "folder") as attempt:
        attempt.note(b"x")
    assert list(crashed_attempts(None)) == list(crashed_attempts(tmp_path / "missing")) == []
