"""The options that commands share, each defined once with its help.

They default to None, which leaves the engine's own default in force; the help names it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crossinfer.cli.option_values import (
    number,
    parse_bias,
    parse_devices,
    parse_gpu_layers,
    unescape,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossinfer.core.progress import Progress
    from crossinfer.engine.llm import LLM
    from crossinfer.engine.sampling import SamplingOptions

    class GenerationOptions(SamplingOptions, total=False):
        """What the methods of LLM that generate take as keywords."""

        max_tokens: int
        stop: Sequence[str]


Group = argparse._ArgumentGroup


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print one JSON object, nothing else.")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What `open_llm` reads, in a group of its own."""
    group = parser.add_argument_group("model and device")
    group.add_argument(
        "--model",
        "-m",
        metavar="MODEL",
        type=Path,
        help="A GGUF file, a Hugging Face model folder, or a name on the Hugging Face Hub: "
        "organisation/name, or organisation/name:quant to choose a GGUF file "
        "(default: the demo model).",
    )
    add_device(group)
    add_context(group)
    add_threads(group)
    group.add_argument(
        "--precision",
        metavar="exact|fast",
        help="With fast, a CPU that has products of bfloat16 rounds 16-bit weights and what they "
        "multiply to it. Quantized weights are computed the same way either way "
        "(default: exact).",
    )
    add_layers(group)


def add_device(group: Group) -> None:
    group.add_argument(
        "--device",
        metavar="NAMES",
        type=parse_devices,
        default="auto",
        help="The device to run on, or several in order of preference, separated by commas; "
        "`crossinfer devices` lists them (default: auto).",
    )


def add_context(group: Group) -> None:
    group.add_argument(
        "--context",
        metavar="N",
        type=whole_number(1),
        help="The longest conversation, prompt and answer together, in tokens "
        "(default: what the model was made for, at most 4096).",
    )


def add_threads(group: Group | argparse.ArgumentParser) -> None:
    group.add_argument(
        "--threads",
        metavar="N",
        type=whole_number(1),
        help="Worker threads of devices that compute on the CPU (default: the device's choice).",
    )


def add_layers(group: Group) -> None:
    group.add_argument(
        "--gpu-layers",
        metavar="auto|N",
        type=parse_gpu_layers,
        default="auto",
        help="Layers that the first device keeps, with their part of the KV cache: as many as fit, "
        "or exactly N. The other layers go to the devices that follow in --device "
        "(default: auto).",
    )
    group.add_argument(
        "--stream-layers",
        action="store_true",
        help="Layers that the first device does not keep are computed there all the same: their "
        "weights come from the host's memory for each step.",
    )


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    """What `generation_options` reads, and --system."""
    parser.add_argument(
        "--system", metavar="TEXT", help="A system message to begin with (default: none)."
    )
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=whole_number(0),
        help="The longest answer in tokens; it also ends where the context is full (default: 512).",
    )
    parser.add_argument(
        "--stop",
        metavar="TEXT",
        action="append",
        type=unescape,
        help="End the answer before this text; repeatable. \\n, \\r, \\t and \\\\ stand for a "
        "newline, a carriage return, a tab and a backslash. Write --stop=TEXT for a text that "
        "begins with a dash (default: none).",
    )
    group = parser.add_argument_group("sampling")
    for option, kind, told in (
        (
            "--temperature",
            number(0),
            "Divides the logits; 0 always takes the most likely token (default: 0.0).",
        ),
        (
            "--top-k",
            whole_number(0),
            "Keep the N most likely tokens; 0 keeps all (default: 0).",
        ),
        (
            "--top-p",
            number(0, 1),
            "Keep the fewest most likely tokens whose probabilities reach this sum (default: 1.0).",
        ),
        (
            "--min-p",
            number(0, 1),
            "Keep tokens at least this likely, relative to the most likely one (default: 0.0).",
        ),
        (
            "--repeat-penalty",
            number(),
            "Makes tokens of prompt and answer less likely by this factor; 1 is neutral "
            "(default: 1.0).",
        ),
        (
            "--presence-penalty",
            number(),
            "Subtracted from the logits of tokens that the answer has (default: 0.0).",
        ),
        (
            "--frequency-penalty",
            number(),
            "Subtracted from them once for each time that they occur (default: 0.0).",
        ),
    ):
        group.add_argument(
            option, metavar="N" if option == "--top-k" else "X", type=kind, help=told
        )
    group.add_argument(
        "--logit-bias",
        metavar="TOKEN=BIAS",
        action="append",
        type=parse_bias,
        help="Add BIAS to the logit of the token with the id TOKEN; -inf rules it out. Repeatable "
        "(default: none).",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=whole_number(0),
        help="The same seed gives the same answer (default: a fresh one).",
    )


_GENERATION = (
    *("max_tokens", "stop", "temperature", "top_k", "top_p", "min_p", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "seed"),
)


def generation_options(args: argparse.Namespace) -> GenerationOptions:
    """The options that were given, as keywords for the engine."""
    values = {name: getattr(args, name) for name in _GENERATION}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if "logit_bias" in given:
        given["logit_bias"] = dict(given["logit_bias"])
    return cast("GenerationOptions", given)


def open_llm(args: argparse.Namespace, progress: Progress, *, wait: bool = True) -> LLM:
    """The model that the options name, loaded (see LLM for `wait`); stderr says which layers are
    where, if not all are on one device.

    Raises what LLM raises.
    """
    from crossinfer.engine.llm import LLM

    llm = LLM(
        args.model,
        args.device,
        context=args.context,
        threads=args.threads,
        precision=args.precision,
        gpu_layers=args.gpu_layers,
        stream_layers=args.stream_layers,
        wait=wait,
        progress=progress,
    )
    if llm.placement is not None:
        print(llm.placement, file=sys.stderr)
    return llm
