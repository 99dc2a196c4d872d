"""`crossinfer devices`: what there is to run on, and the settings of the environment."""

from __future__ import annotations

import argparse
import os
import sys

from crossinfer.cli.output import print_json, print_table
from crossinfer.core.settings import VARIABLES, read_settings
from crossinfer.core.shapes import format_bytes

HELP = """\
List the devices of this machine, and which of them `auto` takes.

It takes a GPU if its kernels pass verification, a good part of the model
fits into its memory and, if that is the host's, it is faster than the CPU."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = HELP
    parser.add_argument(
        "--settings", action="store_true", help="List the environment variables instead."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON list and no table.")
    parser.set_defaults(command=devices)


def devices(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    if args.settings:
        _show_settings(args.json)
    else:
        _show_devices(args.json)


def _show_devices(as_json: bool) -> None:
    from crossinfer.hal.registry import automatic_device, automatic_gpus, find_devices

    automatic: dict[str, str] = {}
    for name in (name.strip() for name in read_settings().device.split(",")):
        if name == "auto":
            automatic |= {info.name: "if it pays" for info in automatic_gpus()}
            automatic[automatic_device()] = "yes"
        else:
            automatic[name] = "yes"
    infos, problems = find_devices()
    for backend, problem in problems.items():
        print(f"The backend {backend} cannot list its devices: {problem}", file=sys.stderr)
    if as_json:
        print_json(
            [
                {
                    "name": info.name,
                    "kind": info.kind.value,
                    "description": info.description,
                    "driver": info.driver,
                    "memory_bytes": info.memory_bytes,
                    "auto": info.name in automatic,
                }
                for info in infos
            ]
        )
        return
    print_table(
        ("name", "kind", "description", "driver", ">memory", "auto"),
        [
            (
                info.name,
                info.kind.value,
                info.description,
                info.driver,
                "the host's" if info.memory_bytes is None else format_bytes(info.memory_bytes),
                automatic.get(info.name, ""),
            )
            for info in infos
        ],
    )


def _show_settings(as_json: bool) -> None:
    rows = [
        (variable.name, variable.takes, variable.meaning, os.environ.get(variable.name))
        for variable in VARIABLES
    ]
    if as_json:
        print_json(
            [dict(zip(("name", "takes", "meaning", "value"), row, strict=True)) for row in rows]
        )
    else:
        print_table(
            ("variable", "takes", "meaning", "value"),
            [(*row[:3], "not set" if row[3] is None else row[3]) for row in rows],
        )
    read_settings()  # a bad value is an error, after the table that says what would be good
