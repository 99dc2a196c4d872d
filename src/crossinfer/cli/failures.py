"""How commands end: each kind of failure with its message and exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from crossinfer.core.errors import CrossinferError, SettingsError
from crossinfer.core.settings import read_settings

EXIT_FAILED = 1
EXIT_USAGE = 2
# What a shell reports for a program that SIGINT or SIGPIPE ended.
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_ENDING_SIGNALS = ("SIGTERM", "SIGHUP")


class UsageError(Exception):
    """Options that don't go together, as one sentence."""


def exit_status(command: Callable[[], int | None]) -> int:
    """Run a command to its exit status.

    Failures become one sentence on stderr; Ctrl-C and a closed pipe are silent. UsageError is
    passed on, to whoever knows how the command is used.
    """
    try:
        status = command()
        sys.stdout.flush()  # here, where a closed pipe or a full disk is still caught
    except CrossinferError as error:
        _tell(error)
        return EXIT_FAILED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:  # such as a full disk that stdout goes to
        _tell(error)
        _discard_stdout()
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return status or 0


def end_in_order() -> None:
    """Have SIGTERM and SIGHUP end the process as an exception does; a SIGTERM behind that at once.

    Otherwise a kernel that is tried in that moment would count as one that ended the process (see
    `hal.attempts`). The exit status is what a shell reports for the signal. Python hears of signals
    between its own instructions: where a driver's call never returns, only SIGKILL helps.
    """
    for name in _ENDING_SIGNALS:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGHUP"):
        # A shell whose terminal closes sends another, and service managers one behind SIGTERM.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _tell(error: Exception) -> None:
    if _debugging():
        import traceback  # few failures are looked into

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
