"""What is being tried right now, written down so that a crash of the process tells whose it was.

A driver that is wrong enough ends the process: no exception tells which kernel it was. So whoever
tries kernels writes their verdicts, as they are if this goes wrong, to a file that it keeps locked,
and removes the file in the end. A file without a lock is one whose process died in the attempt.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".attempt"


class Attempt:
    """The file of one process while it tries something. A context manager.

    A folder that cannot be written makes it do nothing: then a crash leaves no trace.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        if folder is None:
            return
        import tempfile  # most starts have nothing to try

        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(suffix=_SUFFIX, dir=folder)
            self._path, self._file = Path(name), os.fdopen(handle, "wb", buffering=0)
            _lock(self._file)

    def note(self, content: bytes) -> None:
        """Replace what the file says."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.seek(0)
                self._file.truncate()
                self._file.write(content)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


def crashed_attempts(folder: Path | None) -> Iterator[bytes]:
    """What the files of processes say that died in an attempt; the files are removed."""
    if folder is None:
        return
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            with path.open("r+b", buffering=0) as file:
                _lock(file)
                content = file.read()
            path.unlink()  # after it was closed, as Windows wants it
            yield content


def _lock(file: BinaryIO) -> None:
    """Lock a file for this process as long as it is open. Raises OSError if another has it."""
    try:
        import fcntl
    except ImportError:  # Windows; a byte beyond the content, since locked ones can't be read
        import msvcrt

        file.seek(1 << 30)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        file.seek(0)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
