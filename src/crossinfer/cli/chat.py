"""`crossinfer chat`: a conversation, line by line."""

from __future__ import annotations

import re

from crossinfer.cli import options
from crossinfer.cli.conversation import Conversation, note
from crossinfer.cli.line_input import Lines
from crossinfer.cli.progress_bars import ProgressBars

_HELP = """\
/reset  forget what was said and begin anew
/exit   end (also Ctrl-D)
/help   show this
Ctrl-C stops an answer; a second one, before the answer has stopped, ends the program."""


def chat(
    model: options.Model = None,
    device: options.Device = "auto",
    context: options.Context = None,
    threads: options.Threads = None,
    precision: options.Precision = None,
    gpu_layers: options.GpuLayers = "auto",
    stream_layers: options.StreamLayers = False,
    system: options.System = None,
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
    """Talk with a model: each line of standard input is answered, and what was said is kept.

    /reset begins anew, /exit or Ctrl-D ends, Ctrl-C stops an answer, /help says so.
    """
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
        conversation = Conversation(llm, system, bars, given)
        lines = Lines()
        if lines.on_terminal:
            note("/help lists the commands; Ctrl-D ends.")
        for line in lines:
            if line == "/exit":
                break
            if line == "/reset":
                conversation.reset()
            elif line == "/help":
                note(_HELP)
            elif re.fullmatch(r"/\w*", line):
                note(f"There is no command {line}; /help lists the commands.")
            elif line:
                conversation.answer(line)
