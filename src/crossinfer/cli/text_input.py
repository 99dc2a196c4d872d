"""Texts that commands read from files and from standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from crossinfer.core.errors import RequestError


def read_text(path: Path) -> str:
    """The UTF-8 text in a file, or on standard input for `-`. Raises RequestError."""
    name = "Standard input" if str(path) == "-" else f"The file {path}"
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        # Without newline translation: the text is measured as it stands.
        return raw.decode("utf-8")
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{name} is not UTF-8 text (byte {error.start}); convert it to UTF-8."
        ) from error
