"""Chunks, batch mates and placement do not change what a model says."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from tests.steps import CONTEXT, LIMITS, logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer import LLM
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.engine.step import StepRunner
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.ops import OPS
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import load_model
from crossinfer.plan.fusion import PATTERNS

MODELS = ["tiny-llama", "tiny-qwen2", "tiny-qwen3"]


def tokens_for(seed: int, count: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(0, 300, count).tolist()
    return tokens


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("storage", ["f32", "q4_0"])
def test_chunking_does_not_change_logits(name: str, storage: str, tiny_models: TinyModels) -> None:
    model = load_model(tiny_models(name, storage))
    tokens = tokens_for(1, 45)
    with step_runner(model, [ReferenceDevice()]) as runner:
        whole = logits_of(runner, tokens)
        for cuts in ([16, 32], [1, 2, 17, 44], range(1, 45)):
            assert row_error(logits_of(runner, tokens, cuts), whole) < 1e-6


def ragged(runner: StepRunner, prompts: Sequence[list[int]]) -> list[Array]:
    """The last logits of several prompts, computed side by side in uneven chunks."""
    rng = np.random.default_rng()
    free = rng.permutation(np.arange(1, 41)).tolist()
    blocks = [[free.pop() for _ in range(CONTEXT // BLOCK_TOKENS // 2)] for _ in prompts]
    done = [0] * len(prompts)
    result: list[Array] = [np.empty(0)] * len(prompts)
    while any(d < len(p) for d, p in zip(done, prompts, strict=True)):
        chunks, owners = [], []
        for s in rng.permutation(len(prompts)).tolist():
            count = int(rng.integers(0, 9))
            part = prompts[s][done[s] : done[s] + count]
            if not part:
                continue
            done[s] += len(part)
            used = blocks[s][: -(-done[s] // BLOCK_TOKENS)]
            chunks.append(Chunk(part, done[s], used, [len(part) - 1]))
            owners.append(s)
        if chunks:
            logits = runner.run(Batch(tuple(chunks))).logits
            assert logits is not None
            for row, s in enumerate(owners):
                result[s] = logits[row]
    return result


@pytest.mark.parametrize("name", MODELS)
def test_batch_mates_do_not_change_logits(name: str, tiny_models: TinyModels) -> None:
    model = load_model(tiny_models(name))
    prompts = [tokens_for(seed, length) for seed, length in enumerate((3, 41, 17, 60))]
    with step_runner(model, [ReferenceDevice()]) as runner:
        alone = [logits_of(runner, prompt)[-1] for prompt in prompts]
        for together, expected in zip(ragged(runner, prompts), alone, strict=True):
            assert row_error(together, expected) < 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_sampled_tokens_do_not_depend_on_company(name: str, tiny_models: TinyModels) -> None:
    prompts = [tokens_for(seed, length) for seed, length in enumerate((5, 70, 20, 33, 90, 8))]
    with LLM(tiny_models(name), "reference", context=128) as llm:

        def answer(number: int) -> tuple[int, ...]:
            return llm.generate(
                prompts[number], max_tokens=25, temperature=0.9, top_p=0.95, seed=number
            ).tokens

        alone = [answer(number) for number in range(len(prompts))]
        together: dict[int, tuple[int, ...]] = {}
        # All at once: 226 tokens and 150 answers in a cache of 128, so some must give way.
        threads = [
            threading.Thread(target=lambda n=n: together.__setitem__(n, answer(n)))
            for n in range(len(prompts))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [together[number] for number in range(len(prompts))] == alone


@pytest.mark.parametrize("fusions", [(), tuple(PATTERNS)], ids=["plain", "fused"])
@pytest.mark.parametrize("lacking", [op.name for op in OPS])
def test_any_op_can_be_on_another_device(
    lacking: str, fusions: tuple[str, ...], tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models("tiny-qwen3", "q8_0"))
    tokens = tokens_for(3, 20)
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens, [7])
        plain = {node.op.name for node in runner.plan.graph.nodes}
    devices = [
        ReferenceDevice(name="first", lacks=[lacking], fusions=fusions),
        ReferenceDevice(name="second", fusions=fusions),
    ]
    with step_runner(model, devices) as runner:
        assert row_error(logits_of(runner, tokens, [7]), expected) < 1e-6
        ops: list[set[str]] = [set(), set()]
        for segment in runner.plan.segments:
            ops[segment.device].update(step.node.op.name for step in segment.steps)
    assert lacking not in ops[0]
    # A fused op that a device lacks is computed in its parts there.
    assert bool(ops[1]) == (lacking in plain)
    fused = (ops[0] | ops[1]) - plain
    assert bool(fused) == bool(fusions)


def test_layers_spill_to_the_second_device(tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-llama"))
    tokens = tokens_for(4, LIMITS.rows)
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens)
        memory = runner.memory()
    half = (memory["weights"] + memory["kv"]) // 2 + memory["activations"]
    small = ReferenceDevice(name="small", memory_bytes=half)
    with step_runner(model, [small, ReferenceDevice(name="large")]) as runner:
        assert row_error(logits_of(runner, tokens, [7, 20, 40]), expected) < 1e-6
        assert {segment.device for segment in runner.plan.segments} == {0, 1}


def test_a_barred_kernel_is_planned_around(tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-llama"))
    tokens = tokens_for(5, 20)
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens)
    verdicts = VerdictStore(None)
    first, second = ReferenceDevice(name="first"), ReferenceDevice(name="second")
    verdicts.record(first.info, "linear[f32]", passed=False, reason="wrong tail")
    with step_runner(model, [first, second], verdicts) as runner:
        assert row_error(logits_of(runner, tokens), expected) < 1e-6
        on_first = {
            name
            for segment in runner.plan.segments
            if segment.device == 0
            for step in segment.steps
            for name in step.lowering.kernel_names
        }
    assert "linear[f32]" not in on_first
    assert "attention[f32]" in on_first


def test_fusion_does_not_change_logits(tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-qwen2"))
    tokens = tokens_for(6, 20)
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, tokens)
        steps = sum(len(segment.steps) for segment in runner.plan.segments)
    with step_runner(model, [ReferenceDevice(fusions=["swiglu"])]) as runner:
        assert row_error(logits_of(runner, tokens), expected) < 1e-6
        fused = sum(len(segment.steps) for segment in runner.plan.segments)
    assert fused == steps - model.config.layers
