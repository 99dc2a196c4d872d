"""`crossinfer perplexity`: how well a model predicts a text."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from crossinfer.cli import options
from crossinfer.cli.output import print_json
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.cli.text_input import read_text

HELP = """\
Measure the perplexity of a text: lower means that the model predicts it better.

Text longer than the context is cut into windows of it, each on its own.
With --json the keys are perplexity, tokens and seconds (of computing,
without loading)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.description = "%(prog)s [options] file", HELP
    parser.add_argument("file", type=Path, help="A UTF-8 text; - reads standard input.")
    options.add_json(parser)
    options.add_model_options(parser)
    parser.set_defaults(command=perplexity)


def perplexity(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    text = read_text(args.file)
    with ProgressBars() as bars, options.open_llm(args, bars) as llm:
        started = time.perf_counter()
        value = llm.perplexity(text, progress=bars)
        seconds = time.perf_counter() - started
        tokens = len(llm.tokenize(text))
    if args.json:
        print_json({"perplexity": value, "tokens": tokens, "seconds": seconds})
    else:
        print(f"Perplexity {value:.4f} over {tokens} tokens, in {seconds:.1f} s")
