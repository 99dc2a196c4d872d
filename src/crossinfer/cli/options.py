"""The options that commands share, each defined once with its help.

They default to None, which leaves the engine's own default in force; the help names it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crossinfer.cli.option_values import (
    parse_devices,
    parse_gpu_layers,
    parse_logit_bias,
    unescape,
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


_SAMPLING = "Sampling"
_MODEL = "Model and device"

Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        rich_help_panel=_MODEL,
        show_default="the demo model",
        help="A GGUF file, a Hugging Face model folder, or a name on the Hugging Face Hub: "
        "organisation/name, or organisation/name:quant to choose a GGUF file.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        rich_help_panel=_MODEL,
        help="The device to run on, or several in order of preference, separated by commas; "
        "`crossinfer devices` lists them.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        min=1,
        rich_help_panel=_MODEL,
        show_default="what the model was made for, at most 4096",
        help="The longest conversation, prompt and answer together, in tokens.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        rich_help_panel=_MODEL,
        show_default="the device's choice",
        help="Worker threads of devices that compute on the CPU.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="exact|fast",
        rich_help_panel=_MODEL,
        show_default="exact",
        help="With fast, a CPU that has products of bfloat16 rounds 16-bit weights and what they "
        "multiply to it. Quantized weights are computed the same way either way.",
    ),
]
GpuLayers = Annotated[
    str,
    typer.Option(
        "--gpu-layers",
        metavar="auto|N",
        rich_help_panel=_MODEL,
        help="Layers that the first device keeps, with their part of the KV cache: as many as fit, "
        "or exactly N. The other layers go to the devices that follow in --device.",
    ),
]
StreamLayers = Annotated[
    bool,
    typer.Option(
        "--stream-layers",
        rich_help_panel=_MODEL,
        help="Layers that the first device does not keep are computed there all the same: their "
        "weights come from the host's memory for each step.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
System = Annotated[
    str | None,
    typer.Option("--system", show_default="none", help="A system message to begin with."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        min=0,
        show_default="512",
        help="The longest answer in tokens; it also ends where the context is full.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        show_default="none",
        help="End the answer before this text; repeatable. \\n, \\r, \\t and \\\\ stand for a "
        "newline, a carriage return, a tab and a backslash.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        min=0,
        rich_help_panel=_SAMPLING,
        show_default="0.0",
        help="Divides the logits; 0 always takes the most likely token.",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        min=0,
        rich_help_panel=_SAMPLING,
        show_default="0",
        help="Keep the K most likely tokens; 0 keeps all.",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        min=0,
        max=1,
        rich_help_panel=_SAMPLING,
        show_default="1.0",
        help="Keep the fewest most likely tokens whose probabilities reach this sum.",
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        min=0,
        max=1,
        rich_help_panel=_SAMPLING,
        show_default="0.0",
        help="Keep tokens at least this likely, relative to the most likely one.",
    ),
]
RepeatPenalty = Annotated[
    float | None,
    typer.Option(
        "--repeat-penalty",
        rich_help_panel=_SAMPLING,
        show_default="1.0",
        help="Makes tokens of prompt and answer less likely by this factor; 1 is neutral.",
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        "--presence-penalty",
        rich_help_panel=_SAMPLING,
        show_default="0.0",
        help="Subtracted from the logits of tokens that the answer has.",
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty",
        rich_help_panel=_SAMPLING,
        show_default="0.0",
        help="Subtracted from them once for each time that they occur.",
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        metavar="TOKEN=BIAS",
        rich_help_panel=_SAMPLING,
        show_default="none",
        help="Add BIAS to the logit of the token with the id TOKEN; -inf rules it out. Repeatable.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        rich_help_panel=_SAMPLING,
        show_default="a fresh one",
        help="The same seed gives the same answer.",
    ),
]


def generation_options(
    *, stop: list[str] | None, logit_bias: list[str] | None, **others: float | None
) -> GenerationOptions:
    """The options that were given, as keywords for the engine. Raises typer.BadParameter."""
    options: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    if stop:
        options["stop"] = [unescape(text) for text in stop]
    if logit_bias:
        options["logit_bias"] = parse_logit_bias(logit_bias)
    return cast("GenerationOptions", options)


def open_llm(
    model: Path | None,
    device: str,
    context: int | None,
    threads: int | None,
    progress: Progress,
    *,
    precision: str | None = None,
    gpu_layers: str = "auto",
    stream_layers: bool = False,
) -> LLM:
    """The model, loaded; stderr says which layers are where, if not all are on one device.

    Raises typer.BadParameter and what LLM raises.
    """
    devices, kept = parse_devices(device), parse_gpu_layers(gpu_layers)
    from crossinfer.engine.llm import LLM

    llm = LLM(
        model,
        devices,
        context=context,
        threads=threads,
        precision=precision,
        gpu_layers=kept,
        stream_layers=stream_layers,
        progress=progress,
    )
    if llm.placement is not None:
        print(llm.placement, file=sys.stderr)
    return llm
