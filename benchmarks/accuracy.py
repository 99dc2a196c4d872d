"""Prints how near a device's logits come to transformers' float32 on the same dequantized weights.

    python -m benchmarks.accuracy                       SmolLM2, the demo model
    python -m benchmarks.accuracy --qwen                Qwen2.5-Coder-0.5B too (491 MB)
    python -m benchmarks.accuracy --device cpu --llama-cpp

`--llama-cpp` puts llama.cpp beside it (`pip install llama-cpp-python`, which compiles for minutes).
Perplexity is over the first tokens of tests/golden/text.txt and code.py.txt (65% and 35%); the KL
divergence over the kept positions of eight prompts. The goldens and their script are in
tests/golden.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from tests.golden.reader import PROMPTS, RealGolden
from tests.real_models import fetch_qwen_coder

from crossinfer import LLM
from crossinfer.core.dtypes import Array
from crossinfer.engine.demo_model_fetch import fetch_demo_model

CONTEXT = 2048
LogitsOf = Callable[[list[int]], Array]


@contextlib.contextmanager
def ours(path: Path, device: str) -> Iterator[LogitsOf]:
    """Logits float32 [T, V] of a text, by crossinfer."""
    with LLM(path, device, context=CONTEXT) as llm:
        yield llm.logits


@contextlib.contextmanager
def llama_cpp(path: Path) -> Iterator[LogitsOf]:
    """The same by llama.cpp, on the CPU."""
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=CONTEXT, logits_all=True, verbose=False)

    def logits_of(tokens: list[int]) -> Array:
        model.reset()
        model.eval(tokens)
        return np.array(model.scores[: len(tokens)], dtype=np.float32)

    yield logits_of
    model.close()


def losses(logits: Array, tokens: list[int]) -> Array:
    """-ln p of each token but the first: float64 [T - 1]."""
    scores = logits[:-1].astype(np.float64)
    top = scores.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
    result: Array = total - scores[np.arange(len(scores)), tokens[1:]]
    return result


def report(title: str, golden: RealGolden, logits_of: LogitsOf, tokens: int) -> None:
    """One line of figures; behind ± is the standard error of the mean over the tokens."""
    found, expected = [], []
    for key, share in (("text", 0.65), ("code", 0.35)):
        ids = golden[f"{key}_ids"][: int(tokens * share)].tolist()
        found.append(losses(logits_of(ids), ids))
        expected.append(golden[f"{key}_nll"][: len(ids) - 1].astype(np.float64))
    loss, golden_loss = np.concatenate(found).mean(), np.concatenate(expected).mean()
    difference = np.concatenate(found) - np.concatenate(expected)
    deviation = difference.std() / math.sqrt(len(difference))
    divergences, agree = [], []
    for prompt in range(PROMPTS):
        logits = logits_of(golden[f"prompt{prompt}_ids"].tolist())
        divergences.append(golden.divergence(prompt, logits))
        rows = golden[f"prompt{prompt}_rows"]
        agree.append(logits[rows].argmax(axis=1) == golden[f"prompt{prompt}_top_ids"][:, 0])
    divergence, same = np.concatenate(divergences), np.concatenate(agree)
    print(
        f"{title}: perplexity {math.exp(loss):.4f}, float32 {math.exp(golden_loss):.4f} "
        f"({math.expm1(loss - golden_loss):+.3%} ± {deviation:.3%}) over {len(difference)} tokens; "
        f"KL mean {divergence.mean():.2e}, max {divergence.max():.2e}; "
        f"same best token at {same.sum()} of {len(same)} positions",
        flush=True,
    )


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--qwen", action="store_true", help="also Qwen2.5-Coder-0.5B")
    parser.add_argument("--llama-cpp", action="store_true", help="llama.cpp beside it")
    options = parser.parse_args()
    models = {"smollm2": fetch_demo_model}
    if options.qwen:
        models["qwen2.5-coder-0.5b"] = fetch_qwen_coder
    for name, fetch in models.items():
        golden, path = RealGolden(name), fetch()
        with ours(path, options.device) as logits_of:
            report(f"{name} on {options.device}", golden, logits_of, options.tokens)
        if options.llama_cpp:
            with llama_cpp(path) as logits_of:
                report(f"{name}, llama.cpp", golden, logits_of, options.tokens)


if __name__ == "__main__":
    main()
