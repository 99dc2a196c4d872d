"""The cache folder: private, movable, written all or nothing."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from crossinfer.core.cache import (
    VERSION,
    atomic_write,
    cache_folder,
    keep_entry,
    read_entry,
    write_entry,
)
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


@pytest.mark.usefixtures("empty_cache")
def test_a_cache_that_may_only_be_read_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_folder("models")

    def refuse(path: Path, _mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    assert cache_folder("models") == folder


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


def test_entries_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    assert read_entry(path) is None
    write_entry(path, b"code")
    assert read_entry(path) == b"code"
    for damaged in (path.read_bytes()[:-1], b"", b"x" * 36):
        path.write_bytes(damaged)
        assert read_entry(path) is None


def test_an_entry_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep_entry(tmp_path / "file" / "entry", b"code")
    with pytest.raises(OSError, match="file"):
        write_entry(tmp_path / "file" / "entry", b"code")
