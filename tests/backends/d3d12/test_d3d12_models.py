"""Whole models on Direct3D 12: the same numbers as elsewhere, and an answer to a prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.d3d12_driver import open_d3d12_or_skip
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer import LLM
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.d3d12 import D3D12Device
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.graph.tolerance import row_error
from crossinfer.models.model import load_model

TOKENS = np.random.default_rng(3).integers(0, 300, 20).tolist()
CUTS = [16, 17, 18]


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-qwen3"])
def test_logits_are_those_of_the_reference_the_cpu_and_vulkan(
    device: D3D12Device, tiny_models: TinyModels, name: str
) -> None:
    model = load_model(tiny_models(name, "q4_k"))
    with step_runner(model, [device]) as runner:
        assert {d.info.name for d in runner.plan.devices} == {"d3d12"}
        found = logits_of(runner, TOKENS, CUTS)
    with step_runner(model, [ReferenceDevice()]) as runner:
        exact = logits_of(runner, TOKENS)
    with step_runner(model, [open_vulkan_or_skip()]) as runner:
        vulkan = logits_of(runner, TOKENS, CUTS)
    with step_runner(model, [CpuDevice()]) as runner:
        cpu = logits_of(runner, TOKENS, CUTS)
    assert row_error(found, exact) < 1e-4
    assert row_error(found, vulkan) < 1e-5
    # The CPU rounds activations to int8, so it is the choice of tokens that must agree.
    best = np.sort(exact, axis=1)
    clear = best[:, -1] - best[:, -2] > 0.05 * np.abs(exact).max()
    assert np.array_equal(found.argmax(1)[clear], cpu.argmax(1)[clear])
    assert np.array_equal(found.argmax(1), vulkan.argmax(1))


def test_every_dispatch_is_timed(device: D3D12Device, tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-llama", "q4_k"))
    with step_runner(model, [device]) as runner:
        chunk = Chunk(TOKENS[:1], 1, [1], [0])
        kernels = runner.run(Batch((chunk,)), timed=True).kernels
    assert len(kernels) > 10
    assert {kernel.device for kernel in kernels} == {"d3d12"}
    assert all(kernel.duration_s >= 0 for kernel in kernels)
    assert sum(kernel.duration_s for kernel in kernels) > 0
    assert [k.start_s for k in kernels] == sorted(k.start_s for k in kernels)


def test_smollm2_answers_a_short_prompt(smollm2_path: Path) -> None:
    with (
        open_d3d12_or_skip() as device,
        LLM(smollm2_path, device=device, context=128) as llm,
    ):
        answer = llm.chat(
            [{"role": "user", "content": "What is the capital of France?"}],
            temperature=0.0,
            max_tokens=6,
        )
    assert answer.text == "The capital of France is Paris"
