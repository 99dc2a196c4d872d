"""Progress bars: when they are drawn, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import pytest

from crossinfer.cli import progress_bars
from crossinfer.cli.progress_bars import ProgressBars


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as stderr. Not a fixture: pytest's capture takes stderr back after the setup."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_bars, "_DELAY_S", 0.0)
    return terminal


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBars() as bars:
        bars("Loading", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_drawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with ProgressBars() as bars:
        bars("Loading", 1, 2)
        assert "Loading" in terminal.getvalue()
        bars("Loading", 2, 2)
        finished = terminal.getvalue()
        # The last thing written erases the bar's line and shows the cursor again.
        assert "\x1b[2K" in finished[-40:]
        assert "\x1b[?25h" in finished[-40:]
        bars("Reading", 3, 3)
    assert terminal.getvalue() == finished


def test_short_work_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress_bars, "_DELAY_S", 60.0)
    with ProgressBars() as bars:
        bars("Loading", 1, 2)
        bars("Loading", 2, 2)
    assert terminal.getvalue() == ""


def test_work_that_is_given_up_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with contextlib.suppress(ZeroDivisionError), ProgressBars() as bars:
        bars("Loading", 1, 2)
        raise ZeroDivisionError
    assert "\x1b[?25h" in terminal.getvalue()[-40:]


def test_a_terminal_that_fails_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)

    def broken() -> None:
        raise OSError

    monkeypatch.setattr(progress_bars, "_new_display", broken)
    with ProgressBars() as bars:
        bars("Loading", 1, 2)
        bars("Loading", 2, 2)
    assert terminal.getvalue() == ""


def test_threads_may_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with ProgressBars() as bars:

        def work(name: str) -> None:
            for done in range(1, 101):
                bars(name, done, 100)

        threads = [threading.Thread(target=work, args=(f"task {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bars._display is None
    assert "task" in terminal.getvalue()
