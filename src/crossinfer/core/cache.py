"""The cache folder: private, versioned, written atomically, shared by several processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
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
        (root / VERSION).chmod(0o700)  # mkdir applies the mode to the last folder only
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
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
