"""The cache folder: private, movable, written all or nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crossinfer.core.cache import VERSION, atomic_write, cache_folder
from crossinfer.core.errors import SettingsError


def test_the_folder_is_private_and_versioned(empty_cache: Path) -> None:
    folder = cache_folder("kernels", "cpu")
    assert folder == empty_cache / VERSION / "kernels" / "cpu"
    assert (empty_cache / VERSION).stat().st_mode & 0o777 == 0o700
    assert cache_folder("kernels", "cpu") == folder


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path / "file"))
    with pytest.raises(SettingsError, match="set CROSSINFER_CACHE to a folder"):
        cache_folder()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with atomic_write(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    contents = [bytes([number]) * 100_000 for number in range(8)]

    def write(content: bytes) -> None:
        with atomic_write(path) as file:
            file.write(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
