"""Prints how near a device's logits come to transformers' float32 on the same dequantized weights.

    python -m benchmarks.accuracy                       SmolLM2, the demo model
    python -m benchmarks.accuracy --qwen                Qwen2.5-Coder-0.5B too (491 MB)
    python -m benchmarks.accuracy --device reference --tokens 2000

Perplexity is over the first tokens of tests/golden/text.txt and code.py.txt (65% and 35%); the KL
divergence over the kept positions of eight prompts. The goldens and their script are in
tests/golden.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from tests.golden.reader import PROMPTS, RealGolden
from tests.real_models import fetch_qwen_coder

from crossinfer import LLM
from crossinfer.engine.demo_model import fetch_demo_model


def report(name: str, path: Path, device: str, tokens: int) -> None:
    """One line of figures for a model."""
    golden = RealGolden(name)
    with LLM(path, device, context=2048) as llm:
        ours, expected = [], []
        for key, share in (("text", 0.65), ("code", 0.35)):
            ids = golden[f"{key}_ids"][: int(tokens * share)].tolist()
            ours.append(llm.token_losses(ids))
            expected.append(golden[f"{key}_nll"][: len(ids) - 1].astype(np.float64))
        loss, golden_loss = np.concatenate(ours).mean(), np.concatenate(expected).mean()
        divergences, agree = [], []
        for prompt in range(PROMPTS):
            logits = llm.logits(golden[f"prompt{prompt}_ids"].tolist())
            divergences.append(golden.divergence(prompt, logits))
            rows = golden[f"prompt{prompt}_rows"]
            agree.append(logits[rows].argmax(axis=1) == golden[f"prompt{prompt}_top_ids"][:, 0])
    divergence, same = np.concatenate(divergences), np.concatenate(agree)
    print(
        f"{name} on {device}: perplexity {math.exp(loss):.4f}, float32 {math.exp(golden_loss):.4f} "
        f"({math.expm1(loss - golden_loss):+.3%}) over {sum(map(len, ours))} tokens; "
        f"KL mean {divergence.mean():.2e}, max {divergence.max():.2e}; "
        f"same best token at {same.sum()} of {len(same)} positions"
    )


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--qwen", action="store_true", help="also Qwen2.5-Coder-0.5B")
    options = parser.parse_args()
    report("smollm2", fetch_demo_model(), options.device, options.tokens)
    if options.qwen:
        report("qwen2.5-coder-0.5b", fetch_qwen_coder(), options.device, options.tokens)


if __name__ == "__main__":
    main()
