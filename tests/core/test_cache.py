"""The cache folder: private, movable, written all or nothing."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import platformdirs
import pytest

from crossinfer.core.cache import (
    VERSION,
    _default_root,
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


@pytest.mark.parametrize("xdg", [None, "", " ", "/somewhere/else", "relative", " /with spaces "])
@pytest.mark.parametrize("home", ["/home/somebody", "/", ""])
def test_the_default_is_that_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, xdg: str | None, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    expected = platformdirs.user_cache_dir("crossinfer", appauthor=False)
    assert _default_root() == Path(expected)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it asks platformdirs")
def test_the_default_is_found_without_platformdirs(tmp_path: Path) -> None:
    code = (
        "import sys; from crossinfer.core.cache import cache_folder; print(cache_folder());"
        "assert 'platformdirs' not in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CROSSINFER_")}
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(made.stdout.strip()) == tmp_path / "crossinfer" / VERSION


def test_a_folder_that_went_is_made_again(empty_cache: Path) -> None:
    folder = cache_folder("kernels")
    shutil.rmtree(empty_cache)
    assert cache_folder("kernels") == folder
    assert folder.is_dir()
    assert stat.S_IMODE((empty_cache / VERSION).stat().st_mode) == 0o700


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
