"""Runs DirectML's operators against their float64 meaning on this machine's device.

    python -m crossinfer.backends.d3d12.directml.gemm_smoke [--m 5 --k 64 --n 32] [--all]

Prints a line for each operator and type: its error and the limit, or why it does not compile. The
exit code is 0 if every operator that compiles is right, 1 if one is wrong, 2 if there is nothing
to run (no device, no DirectML, or nothing compiles), 3 if the device was lost: the line names the
operator that removes it.
"""

from __future__ import annotations

import argparse
import enum
import sys
from collections.abc import Sequence

import numpy as np

from crossinfer.backends.d3d12.device import D3D12Device
from crossinfer.backends.d3d12.directml.attach import attach
from crossinfer.backends.d3d12.directml.descriptions import name_of
from crossinfer.backends.d3d12.directml.samples import sample_operators
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.directml.tensors import DATA_TYPES
from crossinfer.backends.d3d12.directml.trial import try_operator
from crossinfer.backends.d3d12.opening import open_d3d12
from crossinfer.core.errors import DeviceError, DeviceLost, InvalidUse, KernelUnsupported
from crossinfer.core.settings import read_settings


class ExitCode(enum.IntEnum):
    RIGHT = 0
    WRONG = 1
    NOTHING_TO_RUN = 2
    LOST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _options(arguments)
    try:
        device = open_d3d12()
    except (InvalidUse, KernelUnsupported) as error:
        print(error)
        return ExitCode.NOTHING_TO_RUN
    with device:
        print(f"{device.info.description}, {device.info.driver}")
        try:
            return _try(device, options)
        except KernelUnsupported as error:
            print(error)
            return ExitCode.NOTHING_TO_RUN


def try_all(device: D3D12Device) -> ExitCode:
    """Every operator at the usual sizes, printed; for a test of a whole device.

    Raises KernelUnsupported where there is no DirectML.
    """
    return _try(device, _options(["--all"]))


def _try(device: D3D12Device, options: argparse.Namespace) -> ExitCode:
    directml = attach(device.host, debug=read_settings().validation, wanted="on")
    assert directml is not None, "it was asked for"
    code = run(device, directml.session, options)
    if device.lost is None:
        directml.close()
    return code


def run(device: D3D12Device, session: Session, options: argparse.Namespace) -> ExitCode:
    """Try the operators, each in both types, and print what they gave."""
    rng = np.random.default_rng()
    outcomes = set()
    for dtype in DATA_TYPES:
        for label, description in sample_operators(dtype, options.m, options.k, options.n).items():
            if not options.all and not label.startswith("gemm"):
                continue
            line = f"{name_of(description):24} {description.shape:12} {label:20}"
            try:
                trial = try_operator(device, session, description, rng)
            except DeviceLost as error:
                print(f"{line} {error}")
                return ExitCode.LOST
            except DeviceError as error:
                print(f"{line} {error}")
                continue
            outcomes.add(trial.passed)
            verdict = "ok" if trial.passed else "WRONG"
            print(f"{line} error {trial.error:.2g}, limit {trial.limit:.2g}: {verdict}")
    if not outcomes:
        print("No operator compiles on this device.")
        return ExitCode.NOTHING_TO_RUN
    return ExitCode.RIGHT if all(outcomes) else ExitCode.WRONG


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m crossinfer.backends.d3d12.directml.gemm_smoke",
        description="Runs DirectML's operators against their float64 meaning.",
        epilog="exit codes: 0 right, 1 wrong, 2 nothing to run, 3 the device was lost",
    )
    for name, size in (("m", 5), ("k", 64), ("n", 32)):
        parser.add_argument(f"--{name}", type=int, default=size, help=f"default {size}")
    parser.add_argument("--all", action="store_true", help="also softmax, add, multiply, cast")
    options = parser.parse_args(arguments)
    if min(options.m, options.k, options.n) < 1:
        parser.error("sizes are at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
