"""The CPU beside its peers: the same files, the same prompts, one after another in turns.

    python -m benchmarks.peers                                       every model (4 GB of disk)
    python -m benchmarks.peers --models smollm2 qwen2.5-0.5b:q8_0 --repeat 5 --threads 1
    python -m benchmarks.peers --no-accuracy --peers llama.cpp

Peers take part where they are installed (`pip install llama-cpp-python openvino-genai`; the first
compiles for minutes). smollm2 and qwen2.5-coder-0.5b are real models; `shape:format` names one with
random weights of that shape, made on the spot; f16_of_bf16 are float16 files as checkpoints become
them, whose numbers are bfloat16's. Tokens a second are medians over the turns;
llama.cpp's are the better of flash attention on and off, and of its weights in huge pages or not.
Behind ours stand the shares of the machine's limits, measured in the same seconds, and behind the
peers' ours as a multiple. 16-bit weights take part twice, exact and with `--precision fast`, beside
the peaks of float32 and of bfloat16. Accuracy comes first, since no figure counts without it: the
KL divergence of each runtime's logits to those of the float32 model.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.accuracy import llama_cpp, ours, report
from gguf import GGMLQuantizationType, GGUFReader
from tests.golden.reader import RealGolden
from tests.real_models import fetch_qwen_coder

from crossinfer.engine.demo_model_fetch import fetch_demo_model
from crossinfer.testing.models import write_model

REAL = {"smollm2": fetch_demo_model, "qwen2.5-coder-0.5b": fetch_qwen_coder}
PUBLISHED = "f16_of_bf16"
"""float16 as checkpoints become it: with bfloat16's numbers, where `f16` has random ones."""
MODELS = (
    *REAL,
    "qwen2.5-0.5b:f16",
    f"qwen2.5-0.5b:{PUBLISHED}",
    "qwen2.5-0.5b:q8_0",
    "qwen2.5-0.5b:q4_0",
    "qwen2.5-0.5b:q4_k_m",
    "qwen2.5-1.5b:q8_0",
    "qwen2.5-1.5b:q4_k_m",
)
SHORT = (":f16", ":bf16", f":{PUBLISHED}")
"""Models of 16-bit weights."""
MODULES = {"llama.cpp": "llama_cpp", "openvino": "openvino_genai"}
US = "crossinfer"
FAST = "crossinfer, fast"
HUGE = "llama.cpp, huge pages"
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

Figures = Mapping[str, float]


class Contestant:
    """A process that runs one model with one runtime; see `benchmarks.contestant`."""

    def __init__(self, name: str, model: Path, options: argparse.Namespace) -> None:
        runtime, _, variant = name.partition(", ")
        command = [sys.executable, "-m", "benchmarks.contestant", runtime, str(model)]
        for option in ("threads", "prompt", "generate"):
            command += [f"--{option}", str(getattr(options, option))]
        if name == HUGE:
            command.append("--huge-pages")
        if name == FAST:
            command += ["--precision", variant]
        self.name = name
        self.runs: list[Figures] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=os.environ | (HUGE_PAGES if name == HUGE else {}),
        )
        self._said: deque[str] = deque(maxlen=1)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        self.can_run = self._answer() is not None

    def run(self, seed: int) -> None:
        """One turn. A runtime that fails is out."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{seed}\n")
            self._process.stdin.flush()
        found = self._answer()
        self.can_run = found is not None
        if found is not None:
            self.runs.append(found)

    def median(self, key: str) -> float:
        """NaN where nothing was measured."""
        return statistics.median([run[key] for run in self.runs] or [math.nan])

    def last_words(self) -> str:
        """The last line that the runtime said on stderr: why it cannot run."""
        self._listener.join()
        return "".join(self._said) or "it says nothing"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(line.strip() for line in self._process.stderr if line.strip())

    def _answer(self) -> Figures | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def main() -> None:
    """The command line; see the module's description."""
    options = parse()
    present = [peer for peer in options.peers if importlib.util.find_spec(MODULES[peer])]
    for peer in set(options.peers) - set(present):
        print(f"{peer} is not installed and takes no part.")
    if options.accuracy:
        accuracy(with_llama_cpp="llama.cpp" in present)
    print(
        f"\n{options.threads} threads, {options.prompt} + {options.generate} tokens, medians of "
        f"{options.repeat} turns; prefill / decode in tokens/s"
    )
    for model in options.models:
        with model_file(model) as path:
            contest(model, path, present, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--peers", nargs="*", choices=MODULES, default=tuple(MODULES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--accuracy", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def accuracy(*, with_llama_cpp: bool) -> None:
    """KL divergence and perplexity on SmolLM2."""
    golden, path = RealGolden("smollm2"), fetch_demo_model()
    runtimes = {"crossinfer": ours(path, "cpu")}
    if with_llama_cpp:
        runtimes["llama.cpp"] = llama_cpp(path)
    for name, runtime in runtimes.items():
        with runtime as logits_of:
            report(f"smollm2, {name}", golden, logits_of, tokens=2000)
    print("OpenVINO GenAI gives no logits, so that nothing is known of its accuracy.")


@contextlib.contextmanager
def model_file(model: str) -> Iterator[Path]:
    """The file of a real model, or one with random weights for the time of the block."""
    if model in REAL:
        yield REAL[model]()
        return
    shape, _, storage = model.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(shape, "f16" if storage == PUBLISHED else storage, path)
        if storage == PUBLISHED:
            round_halves(path)
        yield path


def round_halves(path: Path) -> None:
    """Round the float16 of a file to the nearest numbers that bfloat16 has, too."""
    for tensor in GGUFReader(path, "r+").tensors:
        if tensor.tensor_type == GGMLQuantizationType.F16:
            bits = tensor.data.view(np.uint16)
            bits[...] = (bits + 4) & 0xFFF8  # seven bits of mantissa; none is near infinity


def contest(model: str, path: Path, peers: Sequence[str], options: argparse.Namespace) -> None:
    """All runtimes in turns, and what they reached."""
    names = [US, *([FAST] if model.endswith(SHORT) else [])]
    names += [*peers, *([HUGE] if "llama.cpp" in peers else [])]
    contestants = [Contestant(name, path, options) for name in names]
    try:
        for turn in range(options.repeat + 1):  # the first pays for what is made once
            for contestant in contestants:
                if contestant.can_run:
                    contestant.run(turn)
        for contestant in contestants:
            del contestant.runs[:1]
        show(model, contestants)
    finally:
        for contestant in contestants:
            contestant.close()


def show(model: str, contestants: Sequence[Contestant]) -> None:
    kind = "real weights" if model in REAL else "random weights"
    print(f"\n{model} ({kind})")
    ours = [contestant for contestant in contestants if contestant.name in (US, FAST)]
    for contestant in contestants:
        line = f"  {contestant.name:<22}"
        if not contestant.runs:
            print(f"{line}cannot run it: {contestant.last_words()}", flush=True)
            continue
        line += f"{contestant.median('prefill'):8.1f} / {contestant.median('decode'):6.1f}   "
        if contestant in ours:
            line += f"{contestant.median('of_peak'):.0%} of the peak, "
            line += f"{contestant.median('of_read'):.0%} of the read rate"
        else:
            line += ", ".join(ratios(us, contestant) for us in ours if us.runs)
        print(line, flush=True)


def ratios(us: Contestant, peer: Contestant) -> str:
    """Our speeds as multiples of a peer's."""
    multiples = (us.median(key) / peer.median(key) for key in ("prefill", "decode"))
    _, _, variant = us.name.partition(", ")
    return f"{variant or 'ours'} is {' / '.join(f'{m:.2f}' for m in multiples)} times that"


if __name__ == "__main__":
    main()
