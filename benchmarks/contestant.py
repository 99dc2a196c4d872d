"""One runtime, ready to be timed: loads a model, then answers each line of stdin by one of JSON.

    python -m benchmarks.contestant llama.cpp MODEL.gguf --threads 2 --prompt 512 --generate 128

Started by `benchmarks.peers`, a process for each runtime, so that none is in another's way. A line
of stdin is the seed of a prompt of random tokens; the answer tells `prefill` and `decode` in tokens
a second. The first line of stdout, {"ready": seconds}, tells how long loading took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[int], dict[str, float]]


def random_prompt(seed: int, vocabulary: int, tokens: int) -> list[int]:
    """The same for every runtime. Of its own for each run, so that no cache of prefixes helps."""
    return [int(t) for t in np.random.default_rng(seed).integers(vocabulary, size=tokens)]


def crossinfer(path: str, given: argparse.Namespace) -> Run:
    """Beside the speeds: what they are of the device's limits, measured in the same seconds."""
    from crossinfer import LLM
    from crossinfer.cli.measurement import Benchmark
    from crossinfer.core.progress import no_progress

    llm = LLM(
        path,
        given.device,
        context=given.context,
        threads=given.threads,
        precision=given.precision,
    )

    def run(seed: int) -> dict[str, float]:
        benchmark = Benchmark(llm, given.prompt, given.generate, no_progress)
        benchmark.seed = seed
        limits = [benchmark.limits()]
        speed = benchmark.speed(1)
        limits.append(benchmark.limits())
        reached = benchmark.efficiency(speed, None, limits, benchmark.read_share())
        return {
            "prefill": speed.prefill_tokens_per_s,
            "decode": speed.decode_tokens_per_s,
            "of_peak": reached.prefill_gops / (reached.peak_gops or np.nan),
            "of_read": reached.read_share or np.nan,
        }

    return run


def llama_cpp(path: str, given: argparse.Namespace) -> Run:
    """The better of flash attention on and off, run by run."""
    import llama_cpp as native

    native.llama_backend_init()
    silent = native.llama_log_callback(lambda *_: None)
    native.llama_log_set(silent, None)
    model_params = native.llama_model_default_params()
    model_params.use_mmap = not given.huge_pages
    model = native.llama_model_load_from_file(path.encode(), model_params)
    vocabulary = native.llama_vocab_n_tokens(native.llama_model_get_vocab(model))
    contexts = []
    for flash in (0, 1):
        params = native.llama_context_default_params()
        params.n_ctx, params.n_batch = given.context, max(512, given.prompt)
        params.n_threads = params.n_threads_batch = given.threads
        params.flash_attn_type = flash
        contexts.append(native.llama_init_from_model(model, params))

    def step(context: Any, tokens: list[int]) -> int:
        ids = (native.llama_token * len(tokens))(*tokens)
        if native.llama_decode(context, native.llama_batch_get_one(ids, len(tokens))):
            raise RuntimeError("llama_decode failed")
        logits = native.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())

    def run(seed: int) -> dict[str, float]:
        found: dict[str, float] = {"prefill": 0, "decode": 0}
        for context in contexts:
            native.llama_memory_clear(native.llama_get_memory(context), True)
            started = time.perf_counter()
            token = step(context, random_prompt(seed, vocabulary, given.prompt))
            first = time.perf_counter()
            for _ in range(given.generate - 1):
                token = step(context, [token])
            ended = time.perf_counter()
            found["prefill"] = max(found["prefill"], given.prompt / (first - started))
            found["decode"] = max(found["decode"], (given.generate - 1) / (ended - first))
        return found

    return run


def openvino(path: str, given: argparse.Namespace) -> Run:
    """OpenVINO GenAI's pipeline, which reads GGUF files itself."""
    import openvino as ov
    import openvino_genai as genai

    pipeline = genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=given.threads)
    vocabulary = len(pipeline.get_tokenizer().get_vocab())

    def run(seed: int) -> dict[str, float]:
        ids = np.array([random_prompt(seed, vocabulary, given.prompt)], dtype=np.int64)
        prompt = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        metrics = pipeline.generate(
            prompt, max_new_tokens=given.generate, ignore_eos=True, do_sample=False
        ).perf_metrics
        return {
            "prefill": given.prompt / metrics.get_ttft().mean * 1e3,
            "decode": 1e3 / metrics.get_tpot().mean,
        }

    return run


RUNTIMES: dict[str, Callable[[str, argparse.Namespace], Run]] = {
    "crossinfer": crossinfer,
    "llama.cpp": llama_cpp,
    "openvino": openvino,
}


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contestant")
    parser.add_argument("runtime", choices=RUNTIMES)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu", help="crossinfer's")
    parser.add_argument("--precision", default="exact", help="crossinfer's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--huge-pages", action="store_true", help="llama.cpp's weights are copied")
    given = parser.parse_args()
    given.context = given.prompt + given.generate
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a runtime prints
    started = time.perf_counter()
    run = RUNTIMES[given.runtime](given.model, given)
    print(json.dumps({"ready": time.perf_counter() - started}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
