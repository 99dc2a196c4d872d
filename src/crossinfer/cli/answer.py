"""An answer on its way to stdout, and Ctrl-C while it comes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from crossinfer.cli.failures import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from crossinfer.cli.progress_bars import ProgressBars
    from crossinfer.engine.generation import Generation
    from crossinfer.engine.stream import Stream


def receive(stream: Stream, progress: ProgressBars, *, show: bool) -> Generation:
    """The whole answer; printed as it comes, with a newline at its end, if `show`.

    Ctrl-C ends the answer with what was said so far, a second one the process.
    """
    last = ""
    with stream, _ended_by_interrupt(stream, progress):
        for piece in stream:
            if show:
                sys.stdout.write(piece)
                sys.stdout.flush()
                last = piece
        generation = stream.result()
    progress.hide()
    if show and not last.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    return generation


@contextlib.contextmanager
def _ended_by_interrupt(stream: Stream, progress: ProgressBars) -> Iterator[None]:
    """Within the block, Ctrl-C closes `stream` instead of raising.

    An exception could hit between receiving a piece and printing it, and the piece would be lost.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # a job in the background: Ctrl-C is not for it
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, quit_now)
        stream.close()

    def quit_now(_signal: int, _frame: FrameType | None) -> None:
        # An orderly end would wait for the step that runs, and that is what was too slow.
        progress.hide()
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
