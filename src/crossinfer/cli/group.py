"""How commands end: each kind of failure with its message and exit status."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from crossinfer.core.errors import CrossinferError, SettingsError
from crossinfer.core.settings import read_settings

EXIT_FAILED = 1
# What a shell reports for a program that SIGINT or SIGPIPE ended.
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandGroup(TyperGroup):
    """Our errors become one sentence on stderr; Ctrl-C and a closed pipe are silent."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises typer.Exit with the status of a failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe is still caught
        except CrossinferError as error:
            if _debugging():
                traceback.print_exc()
            print(f"Error: {error}", file=sys.stderr)
            raise typer.Exit(EXIT_FAILED) from None
        except BrokenPipeError:
            # The interpreter flushes stdout once more at its end, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        return result


def _debugging() -> bool:
    try:
        return read_settings().debug > 0
    except SettingsError:  # perhaps the very error that is being shown
        return False
