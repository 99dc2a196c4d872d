"""JSON documents of model folders, with errors that name the file."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from crossinfer.core.errors import FormatError, shown
from crossinfer.formats.other_files import SHOWN, what_it_is

# Of configurations, indices and templates: the largest have a few megabytes.
_MAX_BYTES = 20_000_000


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {shown(key)} is there twice")
        result[key] = value
    return result


def parse_object(raw: bytes | memoryview, where: str) -> dict[str, Any]:
    """The JSON object in `raw`. Raises FormatError naming `where` for anything else."""
    try:
        value = json.loads(str(raw, "utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else error
        raise FormatError(f"{where} is not valid JSON: {reason}; download it again.") from None
    if not isinstance(value, dict):
        raise FormatError(f"{where} is not a JSON object; download it again.")
    return value


def read_small_file(path: Path) -> bytes:
    """The bytes of a file that holds text, not weights. Raises FormatError."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise FormatError(f"{path} is not a regular file; download the whole model folder.")
        if state.st_size > _MAX_BYTES:
            raise FormatError(
                f"{path} has {state.st_size} bytes, and at most {_MAX_BYTES} are supported for "
                "what should be a text; download it again."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"There is no file {path}; download the whole model folder.") from None
    except OSError as error:
        raise FormatError(f"The file {path} cannot be read: {error}.") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file at `path`. Raises FormatError."""
    raw = read_small_file(path)
    other = what_it_is(raw[:SHOWN])
    if other is not None:
        raise FormatError(f"{path} is not a JSON file: {other}.")
    return parse_object(raw, str(path))


def read_object_if_any(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file at `path`, or None where there is no such file."""
    return read_object(path) if path.exists() else None
