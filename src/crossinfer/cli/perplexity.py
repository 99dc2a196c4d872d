"""`crossinfer perplexity`: how well a model predicts a text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from crossinfer.cli import options
from crossinfer.cli.output import print_json
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.cli.text_input import read_text


def perplexity(
    file: Annotated[Path, typer.Argument(help="A UTF-8 text; - reads standard input.")],
    model: options.Model = None,
    device: options.Device = "auto",
    context: options.Context = None,
    threads: options.Threads = None,
    precision: options.Precision = None,
    gpu_layers: options.GpuLayers = "auto",
    stream_layers: options.StreamLayers = False,
    json: options.Json = False,
) -> None:
    """Measure the perplexity of a text: lower means that the model predicts it better.

    Text longer than the context is cut into windows of it, each on its own.
    With --json the keys are perplexity, tokens and seconds (of computing,
    without loading).
    """
    text = read_text(file)
    with (
        ProgressBars() as bars,
        options.open_llm(
            model,
            device,
            context,
            threads,
            bars,
            precision=precision,
            gpu_layers=gpu_layers,
            stream_layers=stream_layers,
        ) as llm,
    ):
        started = time.perf_counter()
        value = llm.perplexity(text, progress=bars)
        seconds = time.perf_counter() - started
        tokens = len(llm.tokenize(text))
    if json:
        print_json({"perplexity": value, "tokens": tokens, "seconds": seconds})
    else:
        print(f"Perplexity {value:.4f} over {tokens} tokens, in {seconds:.1f} s")
