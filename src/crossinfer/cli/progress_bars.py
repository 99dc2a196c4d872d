"""Progress bars on the terminal, for work that lasts."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import rich.progress

# What is done sooner would only flicker.
_DELAY_S = 0.3


class ProgressBars:
    """A `core.progress.Progress` that draws on stderr, if that is a terminal.

    A bar disappears when its task is done, before anything that the task leads to is printed. Used
    as a context manager, it leaves the terminal clean whatever happens. Thread-safe.
    """

    def __init__(self) -> None:
        self._enabled = sys.stderr.isatty()
        self._lock = threading.RLock()
        self._display: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}
        self._idle_since = time.monotonic()

    def __call__(self, task: str, done: int, total: int, /) -> None:
        """Draw that `done` of `total` units of `task` are finished."""
        if not self._enabled:
            return
        try:
            with self._lock:
                self._update(task, done, total)
        except Exception:  # the work matters more than its bar
            self._enabled = False

    def hide(self) -> None:
        """Remove all bars, such as those of a task that was given up."""
        with self._lock:
            self._tasks.clear()
            if self._display is not None:
                self._display.stop()
                self._display = None
            self._idle_since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hide()

    def _update(self, task: str, done: int, total: int) -> None:
        if done >= total:
            self._finish(task)
            return
        if self._display is None:
            if time.monotonic() - self._idle_since < _DELAY_S:
                return
            self._display = _new_display()
            self._display.start()
        if task not in self._tasks:
            self._tasks[task] = self._display.add_task(task, total=total)
        self._display.update(self._tasks[task], completed=done, total=total)

    def _finish(self, task: str) -> None:
        if task in self._tasks and self._display is not None:
            self._display.remove_task(self._tasks.pop(task))
        if not self._tasks:
            self.hide()


def _new_display() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Answers go to stdout, whatever the bars do.
        redirect_stdout=False,
        redirect_stderr=False,
    )
