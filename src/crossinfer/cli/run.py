"""`crossinfer run`: one prompt, one answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crossinfer.cli import options
from crossinfer.cli.answer import receive
from crossinfer.cli.failures import EXIT_INTERRUPTED, UsageError
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.cli.text_input import read_text

if TYPE_CHECKING:
    from crossinfer.engine.llm import LLM
    from crossinfer.engine.stream import Stream

HELP = """\
Answer a prompt, word by word.

Ctrl-C ends the answer with what was said so far; the exit status is
then 130. With --json one object with text, tokens, finish_reason and
stats is printed at the end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.description = "%(prog)s [options] prompt", HELP
    parser.add_argument(
        "prompt",
        help="What to answer; - reads it from standard input, less one newline at its end.",
    )
    parser.add_argument(
        "--raw", action="store_true", help="Continue the prompt as it stands: no chat template."
    )
    options.add_json(parser)
    options.add_generation_options(parser)
    options.add_model_options(parser)
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Answer, and give the exit status. Raises UsageError, CrossinferError."""
    if args.raw and args.system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out")
    is_piped = args.prompt == "-"
    text = read_text(Path("-")).removesuffix("\n") if is_piped else args.prompt
    with ProgressBars() as bars, options.open_llm(args, bars, wait=False) as llm:
        stream = _ask(llm, text, args, bars)
        llm.finish_loading()  # here Ctrl-C ends the process, and below the answer
        generation = receive(stream, bars, show=not args.json)
    if args.json:
        from dataclasses import asdict

        from crossinfer.cli.output import print_json

        print_json(asdict(generation))
    return EXIT_INTERRUPTED if generation.finish_reason == "cancelled" else 0


def _ask(llm: LLM, text: str, args: argparse.Namespace, bars: ProgressBars) -> Stream:
    given = options.generation_options(args)
    if args.raw:
        return llm.stream(text, progress=bars, **given)
    messages = [] if args.system is None else [{"role": "system", "content": args.system}]
    messages.append({"role": "user", "content": text})
    return llm.stream_chat(messages, progress=bars, **given)
