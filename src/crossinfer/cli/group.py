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
    """Failures become one sentence on stderr; Ctrl-C and a closed pipe are silent."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises typer.Exit with the status of a failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe or a full disk is still caught
        except CrossinferError as error:
            _tell(error)
            raise typer.Exit(EXIT_FAILED) from None
        except BrokenPipeError:
            _discard_stdout()
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except OSError as error:  # such as a full disk that stdout goes to
            _tell(error)
            _discard_stdout()
            raise typer.Exit(EXIT_FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        return result


def _tell(error: Exception) -> None:
    if _debugging():
        traceback.print_exc()
    print(f"Error: {error}", file=sys.stderr)


def _discard_stdout() -> None:
    """What is left in the buffer must not fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _debugging() -> bool:
    try:
        return read_settings().debug > 0
    except SettingsError:  # perhaps the very error that is being shown
        return False
