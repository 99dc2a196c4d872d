"""`crossinfer run`: one prompt, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossinfer.cli import options
from crossinfer.cli.answer import receive
from crossinfer.cli.group import EXIT_INTERRUPTED
from crossinfer.cli.output import print_json
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.cli.text_input import read_text

if TYPE_CHECKING:
    from crossinfer.engine.llm import LLM
    from crossinfer.engine.stream import Stream


def run(
    prompt: Annotated[
        str,
        typer.Argument(
            help="What to answer; - reads it from standard input, less one newline at its end."
        ),
    ],
    model: options.Model = None,
    device: options.Device = "auto",
    context: options.Context = None,
    threads: options.Threads = None,
    precision: options.Precision = None,
    gpu_layers: options.GpuLayers = "auto",
    stream_layers: options.StreamLayers = False,
    system: options.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it stands: no chat template.")
    ] = False,
    json: options.Json = False,
    max_tokens: options.MaxTokens = None,
    stop: options.Stop = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repeat_penalty: options.RepeatPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    logit_bias: options.LogitBias = None,
    seed: options.Seed = None,
) -> None:
    """Answer a prompt, word by word.

    Ctrl-C ends the answer with what was said so far; the exit status is
    then 130. With --json one object with text, tokens, finish_reason and
    stats is printed at the end.
    """
    if raw and system is not None:
        raise typer.BadParameter(
            "A system message needs the chat template, which --raw leaves out.",
            param_hint="--system",
        )
    given = options.generation_options(
        max_tokens=max_tokens,
        stop=stop,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=logit_bias,
        seed=seed,
    )
    text = read_text(Path("-")).removesuffix("\n") if prompt == "-" else prompt
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
        stream = _ask(llm, text, system, raw, bars, given)
        generation = receive(stream, bars, show=not json)
    if json:
        from dataclasses import asdict

        print_json(asdict(generation))
    if generation.finish_reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)


def _ask(
    llm: LLM,
    text: str,
    system: str | None,
    raw: bool,
    bars: ProgressBars,
    given: options.GenerationOptions,
) -> Stream:
    if raw:
        return llm.stream(text, progress=bars, **given)
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": text})
    return llm.stream_chat(messages, progress=bars, **given)
