"""`crossinfer demo-model`: a small model to begin with."""

from __future__ import annotations

import argparse

from crossinfer.cli.progress_bars import ProgressBars

HELP = """\
Get the demo model, SmolLM2-135M-Instruct (93 MB), and print its path.

It is downloaded once, into the cache folder; commands use it where no
model is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = HELP
    parser.set_defaults(command=demo_model)


def demo_model(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    del args
    from crossinfer.engine.demo_model_fetch import fetch_demo_model

    with ProgressBars() as bars:
        path = fetch_demo_model(bars)
    print(path)
