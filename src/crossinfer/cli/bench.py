"""`crossinfer bench`: how fast a model runs here."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossinfer.cli import options
from crossinfer.cli.memory import resident_bytes
from crossinfer.cli.option_values import new_file, whole_number
from crossinfer.cli.output import print_json, print_table
from crossinfer.cli.progress_bars import ProgressBars
from crossinfer.core.errors import RequestError

if TYPE_CHECKING:
    from crossinfer.cli.trace import KernelTotal
    from crossinfer.hal.timer import TimedKernel


HELP = """\
Measure how fast a model loads, reads prompts and answers.

The first answer pays for what is made once; from --repeat 3 on the
medians leave it out. Prefill is compared with the device's peak rate of
operations, measured before and after the answers. Decode is compared with
the rate at which memory is read: in a dozen short answers, right before
and after each, since on shared machines that rate changes within seconds.

With --json the keys are model, device, prompt_tokens, generate, repeat,
context, prefill_tokens_per_s, prefill_range, decode_tokens_per_s,
decode_range (the lowest and the highest), decode_end_tokens_per_s (null
without --context-end), prefill_gops, peak_gops, decode_gb_s, read_gb_s,
decode_end_gb_s (10^9 a second; null where a device cannot measure its
limits), read_share (what decode has of read_gb_s, in the short answers),
decode_end_expected_tokens_per_s (what the further bytes of the KV cache
leave of the speed at the context's start, measured beside its end),
decode_end_share (what is reached of that), first_token_s, load_s, resident_mb,
end_tokens_barred (true if an answer ended early, so that end tokens were
ruled out) and, with --kernels, kernels. resident_mb is the resident set
after loading in 10^6 bytes, touched pages of the mapped file included (on
macOS its peak so far, on Windows null)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = HELP
    parser.add_argument(
        "--prompt-tokens",
        "-p",
        metavar="N",
        type=whole_number(1),
        default=512,
        help="Tokens of each prompt: random, but fixed (default: 512).",
    )
    parser.add_argument(
        "--generate",
        "-n",
        metavar="N",
        type=whole_number(1),
        default=128,
        help="Tokens of each answer (default: 128).",
    )
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=whole_number(1),
        default=3,
        help="Answers measured; their medians are shown (default: 3).",
    )
    parser.add_argument(
        "--context-end",
        action="store_true",
        help="Measure as many short answers more, which end where the context does.",
    )
    parser.add_argument(
        "--kernels", action="store_true", help="Time one more answer kernel by kernel."
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=new_file,
        help="Write that answer's timeline as a Chrome trace (chrome://tracing, Perfetto) "
        "(default: none).",
    )
    options.add_json(parser)
    options.add_model_options(parser)
    parser.set_defaults(command=bench)


def bench(args: argparse.Namespace) -> None:
    """Raises CrossinferError."""
    from crossinfer.cli.measurement import Benchmark
    from crossinfer.engine.demo_model import find_demo_model
    from crossinfer.engine.setup import DEFAULT_CONTEXT

    if args.context is None and args.prompt_tokens + args.generate > DEFAULT_CONTEXT:
        args.context = args.prompt_tokens + args.generate
    if args.model is None:
        args.model = find_demo_model()
    with ProgressBars() as bars:
        started = time.perf_counter()
        with options.open_llm(args, bars) as llm:
            load_s = time.perf_counter() - started
            resident = resident_bytes()
            benchmark = Benchmark(llm, args.prompt_tokens, args.generate, bars)
            limits = [benchmark.limits()]
            speed = benchmark.speed(args.repeat)
            end = benchmark.at_end(args.repeat) if args.context_end else None
            limits.append(benchmark.limits())
            efficiency = benchmark.efficiency(speed, end, limits, benchmark.read_share())
            is_timed = args.kernels or args.trace is not None
            timeline = benchmark.kernels() if is_timed else []
            names, positions = ",".join(info.name for info in llm.devices), llm.context
    result: dict[str, Any] = {
        "model": str(args.model),
        "device": names,
        "prompt_tokens": args.prompt_tokens,
        "generate": args.generate,
        "repeat": args.repeat,
        "context": positions,
        **dataclasses.asdict(speed),
        "decode_end_tokens_per_s": None if end is None else end.tokens_per_s,
        "decode_end_expected_tokens_per_s": None if end is None else end.expected_tokens_per_s,
        "decode_end_share": None if end is None else end.share,
        **dataclasses.asdict(efficiency),
        "load_s": load_s,
        "resident_mb": None if resident is None else resident / 1e6,
    }
    if args.trace is not None:
        _write_trace(args.trace, timeline)
    _show(result, timeline if args.kernels else None, as_json=args.json)


def _write_trace(path: Path, timeline: list[TimedKernel]) -> None:
    from crossinfer.cli.trace import chrome_trace

    try:
        path.write_text(json.dumps(chrome_trace(timeline)))
    except OSError as error:
        raise RequestError(f"The file {path} cannot be written: {error.strerror}.") from error


def _show(result: dict[str, Any], timeline: list[TimedKernel] | None, *, as_json: bool) -> None:
    from crossinfer.cli.trace import totals

    by_kernel = None if timeline is None else totals(timeline)
    if as_json:
        if by_kernel is not None:
            result["kernels"] = [dataclasses.asdict(total) for total in by_kernel]
        print_json(result)
        return
    _show_speed(result)
    if by_kernel is not None:
        print()
        _show_kernels(by_kernel)


def _show_speed(result: dict[str, Any]) -> None:
    resident = result["resident_mb"]
    rows = [
        ("model", result["model"]),
        ("device", result["device"]),
        ("load", f"{result['load_s']:.2f} s"),
        ("memory", "not measured" if resident is None else f"{resident:.1f} MB"),
        ("first token", f"{result['first_token_s']:.3f} s"),
        (
            "prefill",
            f"{result['prefill_tokens_per_s']:.1f} tokens/s over {result['prompt_tokens']} tokens "
            f"({_range(result['prefill_range'])}), "
            + _beside_peak(result["prefill_gops"], result["peak_gops"]),
        ),
        (
            "decode",
            f"{result['decode_tokens_per_s']:.1f} tokens/s over {result['generate']} tokens "
            f"({_range(result['decode_range'])}), "
            + _beside_reading(result["decode_gb_s"], result["read_gb_s"], result["read_share"]),
        ),
    ]
    if result["decode_end_tokens_per_s"] is not None:
        at_end = f"{result['decode_end_gb_s']:.1f} GB/s"
        expected = result["decode_end_expected_tokens_per_s"]
        if expected is not None:
            at_end += (
                f"; {result['decode_end_share']:.0%} of the {expected:.1f} that the bytes of the "
                "KV cache leave of the start's"
            )
        rows.append(
            (
                "decode at end",
                f"{result['decode_end_tokens_per_s']:.1f} tokens/s up to position "
                f"{result['context']}, {at_end}",
            )
        )
    for name, value in rows:
        print(f"{name:<15}{value}")
    if result["end_tokens_barred"]:
        print("An answer ended early, so end tokens were ruled out, which slows decode a little.")


def _range(of: tuple[float, float]) -> str:
    return f"{of[0]:.1f} to {of[1]:.1f}"


def _beside_peak(reached: float, peak: float | None) -> str:
    share = "" if peak is None else f", {reached / peak:.0%} of the peak of {peak:.1f}"
    return f"{reached:.1f} G operations/s{share}"


def _beside_reading(reached: float, read: float | None, share: float | None) -> str:
    beside = "" if read is None else f"; {share:.0%} of the read rate ({read:.1f}) beside it"
    return f"{reached:.1f} GB/s{beside}"


def _show_kernels(by_kernel: list[KernelTotal]) -> None:
    print_table(
        ("kernel", ">runs", ">total ms", ">share"),
        [
            (total.name, str(total.runs), f"{total.total_ms:.2f}", f"{total.share:.1%}")
            for total in by_kernel
        ],
    )
