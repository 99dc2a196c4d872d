"""The command `crossinfer`: its subcommands, and what holds for the whole process."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import crossinfer
from crossinfer.cli.failures import EXIT_USAGE, UsageError, end_in_order, exit_status

# What each does is the first sentence of its own help; a test compares them.
COMMANDS = {
    "run": "Answer a prompt, word by word.",
    "chat": "Talk with a model: each line of standard input is answered, and what was said is "
    "kept.",
    "inspect": "Show a model's metadata, tensors, formats and sizes; no weights are loaded.",
    "devices": "List the devices of this machine, and which of them `auto` takes.",
    "verify": "Run the whole table of kernel cases on a device and print what passes.",
    "bench": "Measure how fast a model loads, reads prompts and answers.",
    "perplexity": "Measure the perplexity of a text: lower means that the model predicts it "
    "better.",
    "demo-model": "Get the demo model, SmolLM2-135M-Instruct (93 MB), and print its path.",
}
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_MODULES = {"inspect": "inspect_model", "demo-model": "demo_model"}


class _Parser(argparse.ArgumentParser):
    """Takes `--option=--` for what it says: before Python 3.13 its value would be an empty list."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and arg_strings == ["--"]:
            return self._get_value(action, *arg_strings)
        return super()._get_values(action, arg_strings)


def main() -> None:
    """The entry point of the process."""
    # The reference device runs independent dispatches on threads of its own, and BLAS threads on
    # top of them fight for the same cores. NumPy reads this once, when it is imported; the process
    # is ours, so nobody else's arithmetic is slowed down.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Nearly all that a start makes (modules, plans, recordings) stays to the end, and looking for
    # garbage among it after every 700 new objects takes a tenth of the time to the first token.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _open_missing_streams()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A terminal that lacks a character, or a stray byte in the input, must not end an answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _warning_line
    end_in_order()
    status = run_command(sys.argv[1:])
    # What is left is the end's to take, not the collector's to look through: that took 60 ms.
    gc.freeze()
    sys.exit(status)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` within this process, and give its exit status.

    Raises SystemExit after help, and for options that cannot be parsed.
    """
    # No option before the command takes a value.
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    # Where the command comes first, nothing asks for the others.
    listed = [name] if name in COMMANDS and arguments[0] == name else list(COMMANDS)
    parser, command_parser = _parsers(name, listed)
    if not arguments:
        parser.print_help()
        return EXIT_USAGE
    args = parser.parse_args(arguments)
    try:
        return exit_status(lambda: args.command(args))
    except UsageError as error:
        assert command_parser is not None
        command_parser.error(str(error))


def _parsers(
    name: str | None, listed: Sequence[str]
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """The parser of the command line, which knows the commands `listed`, and that of `name`.

    Only the module of that command is imported: those of the others would take longer to load than
    it takes to run.
    """
    parser = _Parser(
        prog="crossinfer",
        description="Run large language models on whatever compute this machine has.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"crossinfer {crossinfer.__version__}"
    )
    commands = parser.add_subparsers(
        prog=parser.prog,  # else the usage is formatted for it
        metavar="COMMAND",
        title="commands",
        required=True,
    )
    chosen = None
    for command in listed:
        added = commands.add_parser(
            command,
            help=COMMANDS[command],
            usage="%(prog)s [options]",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command == name:
            module = importlib.import_module(f"crossinfer.cli.{_MODULES.get(name, name)}")
            module.add_arguments(added)
            chosen = added
    return parser, chosen


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
