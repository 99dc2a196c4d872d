"""On the CPU a row's logits don't depend on chunks or batch mates, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.steps import CONTEXT, LIMITS, logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.backends.cpu import CpuDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.engine.step import StepRunner
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.models.model import load_model

MODELS = ["tiny-llama", "tiny-qwen2", "tiny-qwen3"]


def beside_others(runner: StepRunner, prompts: Sequence[list[int]], seed: int) -> list[Array]:
    """The logits [T, V] of each prompt, computed side by side in random chunks."""
    rng = np.random.default_rng(seed)
    free = rng.permutation(np.arange(1, 41)).tolist()
    blocks = [[free.pop() for _ in range(CONTEXT // BLOCK_TOKENS)] for _ in prompts]
    done = [0] * len(prompts)
    rows: list[list[Array]] = [[] for _ in prompts]
    while any(d < len(p) for d, p in zip(done, prompts, strict=True)):
        chunks, owners = [], []
        for s in rng.permutation(len(prompts)).tolist():
            part = prompts[s][done[s] : done[s] + int(rng.integers(0, LIMITS.rows // 4))]
            if part:
                done[s] += len(part)
                used = blocks[s][: -(-done[s] // BLOCK_TOKENS)]
                chunks.append(Chunk(part, done[s], used, range(len(part))))
                owners.append((s, len(part)))
        if not chunks:
            continue
        logits = runner.run(Batch(tuple(chunks))).logits
        assert logits is not None
        start = 0
        for s, count in owners:
            rows[s].append(logits[start : start + count])
            start += count
    return [np.concatenate(parts) for parts in rows]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("storage", ["f32", "f16", "q4_0", "q8_0", "q4_k", "q6_k"])
@pytest.mark.parametrize("kv_dtype", [DType.F16, DType.F32], ids=lambda d: d.label)
def test_logits_are_the_same_bits(
    name: str, storage: str, kv_dtype: DType, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models(name, storage))
    rng = np.random.default_rng()
    prompts = [rng.integers(0, 300, length).tolist() for length in (5, 64, 33)]
    with step_runner(model, [CpuDevice(threads=2)], kv_dtype=kv_dtype) as runner:
        alone = [logits_of(runner, prompt) for prompt in prompts]
        for expected, prompt in zip(alone, prompts, strict=True):
            one_by_one = logits_of(runner, prompt, range(1, len(prompt)))
            assert np.array_equal(one_by_one, expected)
        for seed in range(3):
            together = beside_others(runner, prompts, seed)
            for found, expected in zip(together, alone, strict=True):
                assert np.array_equal(found, expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_answers(threads: int, tiny_models: TinyModels) -> None:
    prompt = list(range(40, 90))
    answers = []
    for count in (1, threads):
        with LLM(tiny_models("tiny-qwen2", "q4_0"), "cpu", context=128, threads=count) as llm:
            answers.append(llm.generate(prompt, max_tokens=40, temperature=1.2, seed=4).tokens)
    assert answers[0] == answers[1]
