"""Seconds from the start of the process to the first token's text on standard output, by stages.

    python -m benchmarks.startup [--model MODEL] [--device cpu] [--repeat 9] [--prompt TEXT]

Runs `crossinfer run --max-tokens 1` in processes of its own with a warm cache: plain ones for the
totals, and as many with clocks in them for the stages (medians). What the stages leave of their
total is Python between them. Weights are packed beside the stages that follow the device; what is
told of them is how long the first step still waits for them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PLAIN = "from crossinfer.cli.app import main; main()"
PROCESS = Path(__file__).with_name("startup_process.py")


class Start(NamedTuple):
    """Seconds of one process, and those of its stages if it had clocks."""

    first_token: float
    end: float
    processor: float
    stages: dict[str, float]


def measure(arguments: Sequence[str], *, clocks: bool) -> Start:
    """Run the command. Raises SystemExit if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stages.json"
        before, started = os.times(), time.monotonic()
        inner = [str(PROCESS), repr(started), str(file)] if clocks else ["-c", PLAIN]
        command = [sys.executable, *inner, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None
            first = os.read(process.stdout.fileno(), 1)
            first_token = time.monotonic() - started
            process.stdout.read()
            status = process.wait()
        end, after = time.monotonic() - started, os.times()
        if status or not first:
            raise SystemExit(f"the command failed with status {status}")
        processor = sum(after[2:4]) - sum(before[2:4])
        return Start(first_token, end, processor, json.loads(file.read_text()) if clocks else {})


def environment() -> dict[str, str]:
    """With bytecode kept, as an installation has it: to compile all sources takes 0.2 s."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--model", help="default: the demo model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt", default="Why is the sky blue?")
    parser.add_argument("--repeat", type=int, default=9)
    given = parser.parse_args()
    arguments = ["run", "--device", given.device, "--max-tokens", "1", given.prompt]
    if given.model is not None:
        arguments += ["--model", given.model]
    measure(arguments, clocks=False)  # warms the caches
    plain: list[Start] = []
    with_clocks: list[Start] = []
    for _ in range(given.repeat):
        plain.append(measure(arguments, clocks=False))
        with_clocks.append(measure(arguments, clocks=True))
    print_stages(with_clocks)
    for name, values in (
        ("first token", [start.first_token for start in plain]),
        ("end of the process", [start.end for start in plain]),
        ("processor time of all", [start.processor for start in plain]),
    ):
        middle = statistics.median(values)
        print(f"{name:<36}{middle:8.3f} s   ({min(values):.3f} to {max(values):.3f})")


def print_stages(starts: Sequence[Start]) -> None:
    """A line for each stage, in the order in which the stages ended first."""
    names = dict.fromkeys(name for start in starts for name in start.stages)
    rest = [start.first_token - sum(start.stages.values()) for start in starts]
    for name in names:
        middle = statistics.median(start.stages.get(name, 0.0) for start in starts)
        print(f"{name:<36}{middle * 1e3:8.1f} ms")
    print(f"{'between them':<36}{statistics.median(rest) * 1e3:8.1f} ms")
    total = statistics.median(start.first_token for start in starts)
    print(f"{'first token, with clocks':<36}{total:8.3f} s")


if __name__ == "__main__":
    main()
