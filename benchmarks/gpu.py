"""A GPU through the engine, end to end, against what its memory gives and against llama.cpp.

    python -m benchmarks.gpu                                    Vulkan, all models (17 GB of disk)
    python -m benchmarks.gpu --device vulkan:1 --models qwen2.5-0.5b:f16 qwen2.5-7b:q8_0
    python -m benchmarks.gpu --models qwen2.5-7b:f16 --after 2048          deep in a context
    python -m benchmarks.gpu --models tiny-qwen2:f16 --megabytes 16        on a software driver

For each model, whose weights are random and made on the spot: greedy decode and prefill in tokens
a second and as ratios to the peer's; the bytes of weights that a token reads, their rate, and its
share of the rate of one large linear_vec f16 (`read`, measured first); dispatches and barriers of a
step; the medians of a step's wait, of reading its token, of the submission, and of the rest of the
host's time between two submissions; device times by kernel family, which timestamps lengthen; the
rate of prefill's products beside that of plain float32 multiply-adds, and torch's where it has a
GPU (`benchmarks.gpu_prefill` has them one by one). `--check` names the models whose greedy tokens
and prefill are compared with the CPU backend's, wherever the gap of its two best logits counts.

The peer's figures are llama.cpp's (0c1e570, CUDA backend, sm_90, f16, random weights of the same
shapes, flash attention off) on one H200, measured on 2026-11-29; those of prefill vary by a third.
Shaders must have been compiled before (`python -m crossinfer.kernels.build`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from benchmarks.gpu_prefill import float_rate, matrices, product_operations, torch_rates
from benchmarks.gpu_smoke import Work, device_seconds, product

from crossinfer import LLM
from crossinfer.cli.option_values import whole_number
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import CrossinferError, RequestError
from crossinfer.engine.generation import FinishReason, Generation
from crossinfer.engine.recorded_plan import RecordedPlan
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.device import Device
from crossinfer.hal.recording import DispatchCommand, Recording
from crossinfer.hal.registry import open_device
from crossinfer.testing.models import write_model
from crossinfer.testing.shapes import SHAPES

MODELS = ("qwen2.5-0.5b:f16", "qwen2.5-1.5b:f16", "qwen2.5-7b:f16", "qwen2.5-7b:q8_0")
PEER = {
    "qwen2.5-0.5b:f16": (670, 51_000),
    "qwen2.5-1.5b:f16": (397, 36_000),
    "qwen2.5-7b:f16": (182.6, 18_000),
}
"""Tokens a second of decode and of prefill."""
LEAST_TOKENS = 3
"""The first comes from prefill's step; between those of two more, the host's time is measured."""
CLEAR_GAP = 10 * Tolerance.HALF.value
"""Of a row's largest logit: the KV cache holds float16."""


def main() -> int:
    options = parse()
    failed = 0
    with open_device(options.device) as device, tempfile.TemporaryDirectory() as folder:
        print(f"{device.info.name}: {device.info.description}, {device.info.driver}")
        read = read_rate(device, options.megabytes)
        print(f"read: {read / 1e9:.0f} GB/s, the 100% of what follows", flush=True)
        for model in options.models:
            path = Path(folder) / "model.gguf"
            try:
                measure(device, model, path, read, options)
            except CrossinferError as error:
                print(f"{model}: {type(error).__name__}: {error}", flush=True)
                failed += 1
            finally:
                path.unlink(missing_ok=True)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--models", nargs="+", default=MODELS, help="shape:format")
    parser.add_argument("--check", nargs="*", default=MODELS[:1], help="of these, shape:format")
    for option, least, default, told in (
        ("--tokens", LEAST_TOKENS, 128, "generated"),
        ("--after", 1, 16, "tokens before those generated"),
        ("--prompt", 1, 512, "tokens of prefill"),
        ("--repeats", 1, 3, None),
        ("--fma-rounds", 1, 4000, "of the float32 rate"),
        ("--megabytes", 1, 3072, "of the read"),
    ):
        parser.add_argument(option, type=whole_number(least), default=default, help=told)
    return parser.parse_args()


def read_rate(device: Device, megabytes: int) -> float:
    """Bytes a second of a product that does nothing but read weights, which are random."""
    work, columns = Work(device), product(1, DType.F16)["x"].shape[1]
    rows = (megabytes << 20) // (2 * columns)
    values = np.random.default_rng(4).standard_normal((min(rows, 4096), columns), np.float32)
    data = np.resize(values.astype(np.float16), (rows, columns))
    weight = device.upload(data, data.shape, DType.F16, Role.WEIGHT)
    try:
        dispatches = work.dispatches(Linear(), product(rows, DType.F16), weight=weight.view())
        return weight.size_in_bytes / device_seconds(device, dispatches)
    finally:
        work.free()
        weight.free()


def measure(
    device: Device, model: str, path: Path, read: float, options: argparse.Namespace
) -> None:
    started = time.perf_counter()
    name, _, storage = model.partition(":")
    write_model(name, storage, path)
    written = time.perf_counter()
    longest = max(options.after, options.prompt) + options.tokens
    context = min(SHAPES[name].context_length, longest)
    with LLM(path, device, context=context) as llm:
        loaded = time.perf_counter()
        print(f"\n{model} (made in {written - started:.0f} s, loaded in {loaded - written:.0f} s)")
        answer = decode(llm, model, read, options)
        prefill(llm, device, model, options)
        kernel_times(llm)
        if model in options.check:
            check(llm, path, answer, options.after)
    sys.stdout.flush()


class Calls:
    """When calls of a method began and ended, and their arguments."""

    def __init__(self, owner: type, name: str) -> None:
        self.started: list[float] = []
        self.ended: list[float] = []
        self.arguments: tuple[Any, ...] = ()
        original = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.started.append(time.perf_counter())
            result = original(*arguments, **named)
            self.ended.append(time.perf_counter())
            self.arguments = arguments
            return result

        self.watching = mock.patch.object(owner, name, watched)


def generate(llm: LLM, seed: int, prompt: int, tokens: int) -> tuple[list[int], Generation]:
    """A greedy answer of full length, to a random prompt that has one."""
    while True:
        given = np.random.default_rng(seed).integers(llm.tokenizer.vocab_size, size=prompt)
        answer = llm.generate(given.tolist(), max_tokens=tokens, temperature=0.0)
        if answer.finish_reason is FinishReason.LENGTH:
            return given.tolist(), answer
        seed += 1000


def decode(llm: LLM, model: str, read: float, options: argparse.Namespace) -> list[int]:
    """Prints how fast; returns the tokens of a prompt and its answer. Raises RequestError."""
    tokens = min(options.tokens, llm.context - options.after)
    if tokens < LEAST_TOKENS:
        raise RequestError(
            f"--after {options.after} leaves no room for {LEAST_TOKENS} tokens in a context of "
            f"{llm.context}; give less."
        )
    prompt, answer = generate(llm, 0, options.after, tokens)
    speeds = [
        generate(llm, 0, options.after, tokens)[1].stats.decode_tokens_per_s
        for _ in range(options.repeats)
    ]
    speed = statistics.median(speeds)
    runs = Calls(RecordedPlan, "run")
    submits, reads = Calls(Device, "submit"), Calls(Device, "read_result")
    with runs.watching, submits.watching, reads.watching:
        generate(llm, 0, options.after, tokens)
    recording = submits.arguments[1]
    size = weight_bytes(recording)
    compared = against(speed, model, 0)
    print(
        f"decode {tokens}: {speed:.1f} tokens/s{compared} ({min(speeds):.1f} to "
        f"{max(speeds):.1f}); {size / 1e9:.3f} GB a token, {size * speed / 1e9:.0f} GB/s, "
        f"{size * speed / read:.1%} of read"
    )
    dispatches = [c for c in recording.commands if isinstance(c, DispatchCommand)]
    barriers = sum(c.barrier is not None for c in dispatches)
    steps = tokens - 1  # the last ones; those before are prefill's
    waits = np.subtract(runs.ended, submits.ended)[-steps:]
    reading = np.subtract(reads.ended, reads.started)[-steps:]
    submitting = np.subtract(submits.ended, submits.started)[-steps:]
    between = np.subtract(submits.started[1:], runs.ended[:-1])[1 - steps :] - reading[:-1]
    layers = SHAPES[model.partition(":")[0]].layers
    print(
        f"step: {len(dispatches)} dispatches ({len(dispatches) / layers:.1f} a layer), {barriers} "
        f"barriers; wait {median_us(waits)}, "
        f"reading the token {median_us(reading)}, submit {median_us(submitting)}, rest of the "
        f"host's time {median_us(between)}; reading alone would take {size / read * 1e6:.0f} us"
    )
    return [*prompt, *answer.tokens]


def against(speed: float, model: str, figure: int) -> str:
    peer = PEER.get(model)
    return "" if peer is None else f", {speed / peer[figure]:.2f} of llama.cpp's {peer[figure]:g}"


def median_us(seconds: Any) -> str:
    return f"{np.median(seconds) * 1e6:.1f} us"


def weight_bytes(recording: Recording) -> int:
    """What the linear kernels of a step read: weights, and beside them little."""
    views = {
        binding.view
        for command in recording.commands
        if isinstance(command, DispatchCommand)
        and command.dispatch.kernel.name.startswith(("linear", "gated"))
        for binding in command.dispatch.bindings
        if binding.access is Access.READ
    }
    return sum(view.size for view in views)


def prefill(llm: LLM, device: Device, model: str, options: argparse.Namespace) -> None:
    length = min(options.prompt, llm.context - 1)
    generate(llm, 1, length, 1)
    speeds = [
        generate(llm, 2 + number, length, 1)[1].stats.prefill_tokens_per_s
        for number in range(options.repeats)
    ]
    speed = statistics.median(speeds)
    shapes = matrices(SHAPES[model.partition(":")[0]])
    products = product_operations(shapes) * speed
    limit = float_rate(device, options.fma_rounds)
    print(
        f"prefill {length}: {speed:.0f} tokens/s{against(speed, model, 1)} ({min(speeds):.0f} to "
        f"{max(speeds):.0f}), {products / 1e12:.2f} TFLOP/s in products, {products / limit:.1%} of "
        f"the {limit / 1e12:.1f} of multiply-adds{torch_rates(shapes, length)}"
    )


def kernel_times(llm: LLM) -> None:
    """Of a decode step, by kernel family."""
    steps = 8
    with llm.timeline() as kernels:
        generate(llm, 3, 1, steps)
    sums: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        sums[kernel.name.partition("[")[0]] += kernel.duration_s / steps
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    print("kernels: " + ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in ordered))


def check(llm: LLM, path: Path, tokens: list[int], after: int) -> None:
    """Compares what the device chose, in decode and in prefill, with the CPU's logits; of `tokens`
    the first `after` are the prompt.
    """
    try:
        with LLM(path, "cpu", context=llm.context) as other:
            expected = other.logits(tokens)
    except (ImportError, CrossinferError) as error:
        print(f"no CPU backend to compare with: {error}")
        return
    logits = llm.logits(tokens)
    best = np.sort(expected, axis=1)
    clear = best[:, -1] - best[:, -2] > CLEAR_GAP * np.abs(expected).max(axis=1)
    chosen = expected.argmax(axis=1)
    same = logits.argmax(axis=1) == chosen
    start = after - 1
    greedy, counts = np.array(tokens[start + 1 :]) == chosen[start:-1], clear[start:-1]
    print(
        f"CPU's argmax where its gap is clear: decode {greedy[counts].sum()} of {counts.sum()} "
        f"tokens, prefill {same[clear].sum()} of {clear.sum()}; elsewhere {greedy[~counts].sum()} "
        f"of {(~counts).sum()}, {same[~clear].sum()} of {(~clear).sum()}; largest row error "
        f"{row_error(logits, expected):.1e}"
    )


if __name__ == "__main__":
    sys.exit(main())
