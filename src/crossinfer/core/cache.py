"""The cache folder: private, versioned, written atomically, shared by several processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
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
    root = read_settings().cache
    if root is None:
        import platformdirs

        root = Path(platformdirs.user_cache_dir("crossinfer", appauthor=False))
    folder = root.joinpath(VERSION, *parts)
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
    return folder


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
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    digest, data = entry[:size], entry[size:]
    return data if hashlib.sha256(data).digest() == digest else None
