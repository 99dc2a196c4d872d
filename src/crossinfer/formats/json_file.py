"""JSON documents of model folders, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crossinfer.core.errors import FormatError


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is there twice")
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


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file at `path`. Raises FormatError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"There is no file {path}; download the whole model folder.") from None
    except OSError as error:
        raise FormatError(f"The file {path} cannot be read: {error}.") from error
    return parse_object(raw, str(path))


def read_object_if_any(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file at `path`, or None where there is no such file."""
    return read_object(path) if path.exists() else None
