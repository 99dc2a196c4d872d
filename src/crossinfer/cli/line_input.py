"""Lines of standard input: edited on a terminal, plain from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_PROMPT = "> "


class Lines(Iterator[str]):
    """Lines without the white space around them, until the input ends.

    On a terminal there is a prompt, and Ctrl-C gives up the line that is being typed.
    """

    def __init__(self) -> None:
        self.on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if self.on_terminal:
            # Importing it gives `input` line editing and a history; Windows has its own.
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401

    def __next__(self) -> str:
        if not self.on_terminal:
            line = sys.stdin.readline()
            if not line:
                raise StopIteration
            return line.strip()
        while True:
            try:
                return input(_PROMPT).strip()
            except EOFError:
                print()
                raise StopIteration from None
            except KeyboardInterrupt:
                print()
