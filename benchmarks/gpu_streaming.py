"""Streamed layers on a GPU: what copies take alone, what layers take alone, and both together.

    python -m benchmarks.gpu_streaming                                       Vulkan, 1.5B in f16
    python -m benchmarks.gpu_streaming --model tiny-qwen2:f32 --prompt 8     on a software driver

The model's weights are random and made on the spot. With all layers streamed, a token takes at
least the copy of all of them; `overlap` is the share of the layers' own time that is hidden behind
it: 100% where a streamed step takes what the longer of the two takes, 0% where it takes their sum.
Tokens are compared with those of the model without streaming. Shaders must have been compiled
before (`python -m crossinfer.kernels.build`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from crossinfer import LLM
from crossinfer.core.dtypes import DType
from crossinfer.hal.device import Device
from crossinfer.hal.registry import open_device
from crossinfer.testing.models import write_model


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_streaming")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--model", default="qwen2.5-1.5b:f16", help="a name of SHAPES, and storage")
    parser.add_argument("--tokens", type=int, default=16, help="of the answer")
    parser.add_argument("--prompt", type=int, default=192, help="tokens of the step of prefill")
    parser.add_argument("--megabytes", type=int, default=256, help="of the copy alone")
    options = parser.parse_args()
    name, _, storage = options.model.partition(":")
    with tempfile.TemporaryDirectory() as folder, open_device(options.device) as device:
        path = write_model(name, storage, Path(folder) / "model.gguf")
        rate = copy_rate(device, options.megabytes << 20)
        print(f"{device.info.name}: {device.info.description}; copies {rate / 1e9:.1f} GB/s")
        kept, kept_tokens, _ = measure(path, device, options, stream=False)
        streamed, tokens, size = measure(path, device, options, stream=True)
    print(f"{size / 1e9:.2f} GB of layers are streamed; tokens equal: {tokens == kept_tokens}")
    for rows, alone, together in zip((1, options.prompt), kept, streamed, strict=True):
        copy = size / rate
        hidden = (alone + copy - together) / min(alone, copy)
        print(
            f"{rows} tokens: layers alone {alone * 1e3:.1f} ms, copies alone {copy * 1e3:.1f} ms, "
            f"streamed {together * 1e3:.1f} ms; overlap {hidden:.0%}"
        )
    return 0 if tokens == kept_tokens else 1


def copy_rate(device: Device, size: int) -> float:
    """Bytes a second from host memory into the device's, two copies on their way as in a step."""
    sources = [device.host_memory(size) for _ in range(2)]
    slots = [device.alloc((size // 4,), DType.I32) for _ in range(2)]
    for source in sources:
        source.data[:] = 1
    times = []
    for turn in range(10):
        started = time.perf_counter()
        device.copy_in(sources[turn % 2], slots[turn % 2].view()).wait()
        times.append(time.perf_counter() - started)
    for memory in (*sources, *slots):
        memory.free()
    return size / statistics.median(times)


def measure(
    path: Path, device: Device, options: argparse.Namespace, *, stream: bool
) -> tuple[list[float], Sequence[int], int]:
    """Seconds of a step of each size, the tokens of an answer, and the streamed bytes."""
    layers = 0 if stream else None
    with LLM(path, device, context=256, gpu_layers=layers, stream_layers=stream) as llm:
        llm.generate([1, 2, 3], max_tokens=4)  # what is made once
        answer = llm.generate([1, 2, 3], max_tokens=options.tokens)
        decode = 1 / answer.stats.decode_tokens_per_s
        prompt = [number % 100 for number in range(options.prompt)]
        llm.generate(prompt, max_tokens=1)
        prefill = statistics.median(_seconds(llm, prompt) for _ in range(3))
        return [decode, prefill], answer.tokens, streamed_bytes(llm)


def _seconds(llm: LLM, prompt: Sequence[int]) -> float:
    started = time.perf_counter()
    llm.generate(prompt, max_tokens=1)
    return time.perf_counter() - started


def streamed_bytes(llm: LLM) -> int:
    return sum(arena.size for arena in llm.plan.slots.values())


if __name__ == "__main__":
    sys.exit(main())
