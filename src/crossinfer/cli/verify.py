"""`crossinfer verify`: every kernel of a device against the float64 meaning of its op."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from crossinfer.cli import options
from crossinfer.cli.failures import EXIT_FAILED, UsageError
from crossinfer.cli.output import print_json, print_table
from crossinfer.cli.progress_bars import ProgressBars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossinfer.verify.runner import Outcome
    from crossinfer.verify.table import KnownOutcome


HELP = """\
Run the whole table of kernel cases on a device and print what passes.

Each kernel gets fresh random inputs, and its results are compared with
the float64 meaning of its op. Known driver failures are tried too, at the
end. The exit status is 1 if a kernel fails that is not known to."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = HELP
    parser.add_argument(
        "--device",
        metavar="NAME",
        default="auto",
        help="The device to verify, one name; `crossinfer devices` lists them (default: auto).",
    )
    parser.add_argument(
        "--op",
        action="append",
        help="Verify an op (linear) or its kernels for one storage (linear[q4_0]) only. "
        "Repeatable (default: all).",
    )
    parser.add_argument(
        "--save",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Keep the verdicts, which decide what models run with",
    )
    parser.add_argument(
        "--forget",
        action="store_true",
        help="First drop what is known of the device, also what is barred after a loss.",
    )
    options.add_threads(parser)
    options.add_json(parser)
    parser.set_defaults(command=verify)


def verify(args: argparse.Namespace) -> int:
    """Verify, and give the exit status. Raises UsageError, CrossinferError."""
    import functools

    from crossinfer.hal.known_failures import KNOWN_FAILURES
    from crossinfer.hal.registry import open_device
    from crossinfer.hal.verdicts import VerdictStore
    from crossinfer.verify.cases import all_cases, cases_of
    from crossinfer.verify.table import TableRun

    cases = cases_of(*args.op) if args.op else all_cases()
    if not cases:
        raise UsageError(
            f"There is no op {' or '.join(args.op or ())}; the ops are "
            f"{', '.join(dict.fromkeys(case.op.name for case in all_cases()))}"
        )
    if args.forget and not args.save:
        raise UsageError("--forget is not kept with --no-save; leave one of them out")
    store = VerdictStore.default() if args.save else VerdictStore(None, KNOWN_FAILURES)
    started = time.perf_counter()
    with (
        ProgressBars() as bars,
        TableRun(functools.partial(open_device, args.device, threads=args.threads), store) as run,
    ):
        if args.forget:
            store.forget(run.device.info)
        outcomes = run.run(cases, bars)
        known = [] if args.op else run.run_known()
        info = run.device.info
    kernels = _by_kernel(outcomes)
    seconds = time.perf_counter() - started
    if args.json:
        print_json(
            {
                "device": info.name,
                "description": info.description,
                "driver": info.driver,
                "cases": len(outcomes),
                "failed": sum(not outcome.passed for outcome in outcomes),
                "seconds": seconds,
                "kernels": kernels,
                "known_failures": [_known_row(each) for each in known],
            }
        )
    else:
        _print(f"{info.name} ({info.description}, {info.driver})", outcomes, kernels, known)
        print(f"in {seconds:.1f} s; the verdicts are {'kept' if args.save else 'not kept'}")
    return EXIT_FAILED if any(not outcome.passed for outcome in outcomes) else 0


def _by_kernel(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each kernel, in the order in which they ran first."""
    rows: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        for kernel in dict.fromkeys(outcome.kernels):
            row = rows.setdefault(
                kernel, {"kernel": kernel, "cases": 0, "failed": 0, "error": 0.0, "reason": ""}
            )
            row["cases"] += 1
            row["failed"] += not outcome.passed
            row["error"] = max(row["error"], outcome.error)
            row["reason"] = row["reason"] or outcome.reason
    return list(rows.values())


def _known_row(known: KnownOutcome) -> dict[str, Any]:
    row = known.row
    return {
        "kernel": row.kernel,
        "shape": row.shape,
        "reason": row.reason,
        "tried": bool(known.outcomes),
        "cured": known.is_cured,
    }


def _print(
    title: str,
    outcomes: Sequence[Outcome],
    kernels: Sequence[dict[str, Any]],
    known: Sequence[KnownOutcome],
) -> None:
    print_table(
        ("kernel", ">cases", ">failed", ">largest error"),
        [(k["kernel"], str(k["cases"]), str(k["failed"]), f"{k['error']:.1e}") for k in kernels],
    )
    for kernel in kernels:
        if kernel["reason"]:
            print(f"{kernel['kernel']} is barred: {kernel['reason']}")
    for each in known:
        state = "cured here" if each.is_cured else "not cured" if each.outcomes else "not tried"
        print(f"Known failure of {each.row.kernel} at {each.row.shape}: {state}.")
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{title}: {len(outcomes) - failed} of {len(outcomes)} runs passed", end=", ")
