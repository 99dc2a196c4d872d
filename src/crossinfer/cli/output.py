"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# Wide enough that a table in a file or a pipe is never folded.
_UNBOUNDED = 10_000


def print_json(value: Any) -> None:
    """One JSON value. ASCII, so that no terminal's or pipe's encoding can spoil it.

    Numbers that JSON lacks (NaN and infinities) become null.
    """
    print(json.dumps(_with_finite_numbers(value), indent=2 if sys.stdout.isatty() else None))


def _with_finite_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _with_finite_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite_numbers(inner) for inner in value]
    return value


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows in columns; a header that begins with `>` puts its column to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich ends the process with a status of its own

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(
            header.removeprefix(">"),
            justify="right" if header.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: brackets are not markup
    Output(width=None if sys.stdout.isatty() else _UNBOUNDED).print(table)


def printable(text: str) -> str:
    """`text` of a stranger's file, fit for one line of a terminal: control characters escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def abbreviated(text: str, limit: int) -> str:
    """`text` in one line, its length instead of its end if it is long."""
    if len(text) <= limit:
        return printable(text)
    return f"{printable(text[:limit])}… ({len(text)} characters)"
