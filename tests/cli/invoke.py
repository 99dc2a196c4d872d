"""The command line within this process: what a test gives it, and what it gave."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Sequence
from unittest import mock

from crossinfer.cli.app import run_command


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def invoke(arguments: Sequence[str], typed: str | bytes = b"") -> Result:
    """Run `crossinfer` with `arguments`, with `typed` to read. What it does not catch is raised."""
    raw = typed.encode() if isinstance(typed, str) else typed
    stdin = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = run_command(arguments)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
    return Result(status, out.getvalue(), err.getvalue())
