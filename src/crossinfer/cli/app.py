"""The command `crossinfer`: its subcommands, and what holds for the whole process."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

import crossinfer
from crossinfer.cli.bench import bench
from crossinfer.cli.chat import chat
from crossinfer.cli.demo_model import demo_model
from crossinfer.cli.devices import devices
from crossinfer.cli.group import CommandGroup
from crossinfer.cli.inspect_model import inspect
from crossinfer.cli.perplexity import perplexity
from crossinfer.cli.run import run
from crossinfer.cli.verify import verify

app = typer.Typer(
    name="crossinfer",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crossinfer {crossinfer.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run large language models on whatever compute this machine has."""
    del version  # its callback has done everything


for _command in (run, chat, inspect, devices, verify, bench, perplexity):
    app.command()(_command)
app.command(name="demo-model")(demo_model)


def main() -> None:
    """The entry point of the process."""
    # The reference device runs independent dispatches on threads of its own, and BLAS threads on
    # top of them fight for the same cores. NumPy reads this once, when it is imported; the process
    # is ours, so nobody else's arithmetic is slowed down.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_missing_streams()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A terminal that lacks a character, or a stray byte in the input, must not end an answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _warning_line
    app(prog_name="crossinfer")


def _open_missing_streams() -> None:
    """Make up for standard streams that the caller closed, which Python gives as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _warning_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning for whoever asked, who has no use for a source line of ours."""
    del category, filename, lineno, line
    return f"Warning: {message}\n"
