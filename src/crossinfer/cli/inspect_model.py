"""`crossinfer inspect`: what is in a model file, and what would run where."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossinfer.cli import options
from crossinfer.cli.output import abbreviated, print_json, print_table, printable
from crossinfer.core.shapes import format_bytes

if TYPE_CHECKING:
    from crossinfer.cli.model_report import ModelReport
    from crossinfer.cli.plan_preview import PlanPreview

# Characters of a metadata value that are shown.
_WIDTH = 70


HELP = """\
Show a model's metadata, tensors, formats and sizes; no weights are loaded.

--plan shows each op with its device, kernels, the bytes of weights that
it reads, and why it is not on a device that is named earlier. --device,
--context, --gpu-layers and --stream-layers matter for --plan only.

With --json, long arrays appear as their length and first elements, the
plan as an object with the keys devices, layers (the device of each),
streamed (which layers are), placement (a sentence, or null if one device
keeps all) and steps."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.description = "%(prog)s [options] model", HELP
    parser.add_argument(
        "model",
        type=Path,
        help="A GGUF file, a Hugging Face model folder, or a name on the Hugging Face Hub.",
    )
    parser.add_argument(
        "--plan", action="store_true", help="Show what would run where, instead of the tensors."
    )
    options.add_json(parser)
    group = parser.add_argument_group("device")
    options.add_device(group)
    options.add_context(group)
    options.add_layers(group)
    parser.set_defaults(command=inspect)


def inspect(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    from crossinfer.cli.model_report import report
    from crossinfer.cli.progress_bars import ProgressBars
    from crossinfer.engine.hub import find_model
    from crossinfer.formats.model_file import open_model_file

    with ProgressBars() as bars:
        file = open_model_file(find_model(args.model, bars))
    found = report(file)
    planned = None
    if args.plan:
        from crossinfer.cli.plan_preview import preview

        planned = preview(file, args.device, args.context, args.gpu_layers, args.stream_layers)
    if args.json:
        print_json(_as_json(found, planned))
    else:
        _show_summary(found)
        if planned is None:
            _show_contents(found)
        else:
            print()
            print(printable_lines(planned.text))


def printable_lines(text: str) -> str:
    """Lines that hold names out of a file, fit for a terminal."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _show_summary(found: ModelReport) -> None:
    rows = [
        ("file", found.path),
        ("format", found.format),
        ("architecture", found.architecture or "not named"),
        ("size", f"{format_bytes(found.file_bytes)}, tensors {format_bytes(found.tensor_bytes)}"),
        ("parameters", f"{found.parameters:,} in {len(found.tensors)} tensors"),
    ]
    if found.config is not None:
        config = found.config
        rows += [
            (
                "layers",
                f"{config.layers}, hidden {config.hidden}, feed-forward {config.feed_forward}",
            ),
            ("attention", f"{config.heads} heads, {config.kv_heads} KV heads of {config.head_dim}"),
            ("vocabulary", f"{config.vocabulary} tokens"),
            ("context", f"{config.context} tokens"),
        ]
    rows += [("note", note) for note in found.notes]
    if found.problem is not None:
        rows.append(("cannot run", found.problem))
    for name, value in rows:
        print(f"{name:<14}{printable(value)}")


def _show_contents(found: ModelReport) -> None:
    print()
    print_table(
        ("metadata", "value"),
        [(printable(key), _shown(value)) for key, value in found.metadata.items()],
    )
    print()
    print_table(
        ("tensor", "shape", "storage", ">bytes"),
        [
            (
                printable(tensor.name),
                " x ".join(map(str, tensor.shape)),
                tensor.storage.label,
                str(tensor.size_in_bytes),
            )
            for tensor in found.tensors
        ],
    )
    print()
    print_table(
        ("storage", ">tensors", ">parameters", ">size"),
        [
            (total.storage, str(total.tensors), f"{total.parameters:,}", format_bytes(total.bytes))
            for total in found.totals
        ],
    )


def _shown(value: Any) -> str:
    """A metadata value in one line."""
    from crossinfer.cli.model_report import LongArray

    if isinstance(value, LongArray):
        first = ", ".join(str(element) for element in value.first)
        return f"{printable(first[:_WIDTH])}… ({value.length} elements)"
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, default=_long_array_as_json)
        return abbreviated(text, _WIDTH)
    return abbreviated(str(value), _WIDTH)


def _as_json(found: ModelReport, planned: PlanPreview | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "path": found.path,
        "format": found.format,
        "architecture": found.architecture,
        "file_bytes": found.file_bytes,
        "tensor_bytes": found.tensor_bytes,
        "parameters": found.parameters,
        "config": None if found.config is None else dataclasses.asdict(found.config),
        "notes": list(found.notes),
        "problem": found.problem,
        "metadata": _metadata_as_json(found.metadata),
        "tensors": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "storage": tensor.storage.label,
                "bytes": tensor.size_in_bytes,
            }
            for tensor in found.tensors
        ],
        "storage": [dataclasses.asdict(total) for total in found.totals],
    }
    if planned is not None:
        result["plan"] = planned.json
    return result


def _metadata_as_json(value: Any) -> Any:
    from crossinfer.cli.model_report import LongArray

    if isinstance(value, LongArray):
        return dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _metadata_as_json(inner) for key, inner in value.items()}
    return value


def _long_array_as_json(value: Any) -> Any:
    return dataclasses.asdict(value)
