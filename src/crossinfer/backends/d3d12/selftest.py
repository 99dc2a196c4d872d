"""Runs every kernel case on this machine's Direct3D 12 devices, DirectML included, and reports.

    python -m crossinfer.backends.d3d12.selftest [--device NUMBER] [--op OP] [--validation]

For Windows, Wine and Linux alike: what it prints is meant to be sent along with a report of an
error. No verdict is kept; `crossinfer verify --device d3d12` does that. The exit code is 0 if
everything passed, 1 if something failed, 2 if there is no device to run on.
"""

from __future__ import annotations

import argparse
import enum
import functools
import platform
import sys
import time
from collections.abc import Sequence

from crossinfer.backends.d3d12.adapter import Adapter
from crossinfer.backends.d3d12.adapters import find_adapters
from crossinfer.backends.d3d12.device import D3D12Device
from crossinfer.backends.d3d12.directml import gemm_smoke
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.opening import open_adapter
from crossinfer.core.errors import CrossinferError, DeviceError
from crossinfer.hal.known_failures import KNOWN_FAILURES
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases, cases_of
from crossinfer.verify.table import TableRun

_DEADLINE_S = 600.0
"""A software driver may take long to compile a kernel."""


class ExitCode(enum.IntEnum):
    PASSED = 0
    FAILED = 1
    NO_DEVICE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _options(arguments)
    print(f"{platform.platform()}, Python {platform.python_version()}")
    api = direct3d()
    if api is None:
        print(
            "There is no Direct3D 12 here: on Linux start this by scripts/d3d12-run, or name a "
            "library in CROSSINFER_D3D12_LIBRARY."
        )
        return ExitCode.NO_DEVICE
    print(f"Direct3D 12 of {api.library.name}, calls as {api.abi.value}")
    found = find_adapters(api)
    for number, adapter in enumerate(found):
        print(f"device {number}: {adapter.description}, {adapter.kind.value}, {adapter.driver}")
    chosen = range(len(found)) if options.device is None else [options.device]
    if not found or any(number not in range(len(found)) for number in chosen):
        print("There is no such device.")
        return ExitCode.NO_DEVICE
    cases = cases_of(*options.op) if options.op else all_cases()
    passed = [_test(api, found[n], n, cases, validation=options.validation) for n in chosen]
    return ExitCode.PASSED if all(passed) else ExitCode.FAILED


def _test(
    api: Direct3D, adapter: Adapter, number: int, cases: Sequence[Case], *, validation: bool
) -> bool:
    """Whether everything passed on one device; prints what did not."""
    print(f"\ndevice {number}: {adapter.description}")
    open_it = functools.partial(open_adapter, api, adapter, number, validation, _DEADLINE_S)
    started = time.perf_counter()
    try:
        with TableRun(open_it, VerdictStore(None, KNOWN_FAILURES)) as run:
            outcomes = run.run(cases)
    except DeviceError as error:
        print(error)
        return False
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        print(f"FAILED {', '.join(outcome.kernels)}: {outcome.reason}")
    seconds = time.perf_counter() - started
    ran = len(outcomes) - len(failed)
    print(f"kernels: {ran} of {len(outcomes)} runs passed in {seconds:.1f} s")
    return bool(outcomes) and not failed and _test_directml(open_it)


def _test_directml(open_it: functools.partial[D3D12Device]) -> bool:
    """Whether nothing that DirectML compiles here is wrong."""
    try:
        with open_it() as device:
            code = gemm_smoke.try_all(device)
    except CrossinferError as error:
        print(f"DirectML: {error}")
        return True  # there is none, or it cannot start: our kernels need none
    return code in (gemm_smoke.ExitCode.RIGHT, gemm_smoke.ExitCode.NOTHING_TO_RUN)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m crossinfer.backends.d3d12.selftest",
        description="Runs every kernel case on the Direct3D 12 devices of this machine.",
        epilog="exit codes: 0 all passed, 1 something failed, 2 no device",
    )
    parser.add_argument("--device", type=int, help="one device, by number (default: all)")
    parser.add_argument("--op", action="append", help="one op, or one storage as linear[q4_0]")
    parser.add_argument("--validation", action="store_true", help="with the debug layer")
    options = parser.parse_args(arguments)
    if options.op and not cases_of(*options.op):
        parser.error(f"there is no op {' or '.join(options.op)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
