"""The cache folder: private, versioned, written atomically, shared by several processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from crossinfer.core.errors import SettingsError
from crossinfer.core.settings import read_settings

VERSION = "v1"


def cache_folder(*parts: str) -> Path:
    """The folder `parts` under the cache, made if it is missing, readable by this user only.

    Compiled code that lives here is executed, so nobody else may write to it.
    """
    root = read_settings().cache or _default_root()
    folder = root.joinpath(VERSION, *parts)
    if folder in _checked and os.path.isdir(folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkdir applies the mode to the last folder only. A folder that may only be read is of use
        # as long as its mode is right.
        if stat.S_IMODE((root / VERSION).stat().st_mode) != 0o700:
            (root / VERSION).chmod(0o700)
    except OSError as error:
        raise SettingsError(
            f"The cache folder {folder} cannot be made ({error.strerror}); "
            "set CROSSINFER_CACHE to a folder that can be written."
        ) from error
    _checked.add(folder)
    return folder


_checked: set[Path] = set()
"""Folders that this process has made or found with the right mode: a start asks for dozens."""


def _default_root() -> Path:
    """As `platformdirs` has it, whose import takes longer than a start takes to read the cache."""
    if sys.platform == "linux" and os.environ.get("HOME") and "ANDROID_DATA" not in os.environ:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if os.path.isabs(base):
            return Path(base, "crossinfer")
    import platformdirs

    return Path(platformdirs.user_cache_dir("crossinfer", appauthor=False))


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `path` complete or not at all.

    Written beside its target and renamed, so that readers in other processes never see a part.
    """
    import tempfile  # a start that finds all in the cache writes nothing

    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def write_entry(path: Path, data: bytes) -> None:
    """A cache entry: `data` behind its checksum, complete or not at all. Raises OSError."""
    with atomic_write(path) as file:
        file.write(hashlib.sha256(data).digest() + data)


def keep_entry(path: Path, data: bytes) -> None:
    """As `write_entry`, but a folder that cannot be written, or a full disk, is no reason to fail:
    what a cache holds can be made again.
    """
    with contextlib.suppress(OSError):
        write_entry(path, data)


def read_entry(path: Path) -> bytes | None:
    """The data of a cache entry; None if there is none, or it was cut short or damaged."""
    # With as few calls as it takes: each of dozens of files lets another thread go first.
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            entry = os.read(handle, os.fstat(handle).st_size)
        finally:
            os.close(handle)
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    digest, data = entry[:size], entry[size:]
    return data if hashlib.sha256(data).digest() == digest else None
