"""Small random models on a Vulkan device, and what a step costs the host."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer import LLM
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.buffer import View
from crossinfer.hal.recording import Recording
from crossinfer.models.model import load_model

NEAR_TIE = 0.5
TOKENS = np.random.default_rng(3).integers(0, 300, 40).tolist()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-qwen3"])
@pytest.mark.parametrize("storage", ["f16", "q4_k"])
def test_logits_are_those_of_the_reference(
    device: VulkanDevice, tiny_models: TinyModels, name: str, storage: str
) -> None:
    model = load_model(tiny_models(name, storage))
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, TOKENS)
    with step_runner(model, [device]) as runner:
        assert {d.info.name for d in runner.plan.devices} == {"vulkan"}
        found = logits_of(runner, TOKENS, [16, 17, 18, 35])
    assert row_error(found, expected) < 1e-4


@pytest.mark.parametrize("kept", [0, 2])
def test_streamed_layers_do_not_change_logits(
    device: VulkanDevice, tiny_models: TinyModels, kept: int
) -> None:
    model = load_model(tiny_models("tiny-qwen2", "q4_k", layers=5))
    with step_runner(model, [device]) as runner:
        expected = logits_of(runner, TOKENS, [16, 17, 18, 35])
    with (
        open_vulkan_or_skip() as again,
        step_runner(model, [again], first_layers=kept, stream_layers=True) as runner,
    ):
        assert len(runner.plan.split.streamed) == 5 - kept
        for _ in range(2):
            found = logits_of(runner, TOKENS, [16, 17, 18, 35])
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("stream", [False, True], ids=["divided", "streamed"])
def test_a_model_that_does_not_fit_takes_no_more_than_there_is(
    device: VulkanDevice, tiny_models: TinyModels, stream: bool
) -> None:
    model = load_model(tiny_models("tiny-qwen2", "f16", layers=6))
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, TOKENS, [16, 17, 18, 35])
    with open_vulkan_or_skip() as whole, step_runner(model, [whole]) as runner:
        memory = runner.memory()
    layers = memory["weights"] + (0 if stream else memory["kv"])
    budget = memory["weights"] + memory["kv"] - 45 * layers // 100 + 300_000  # of activations
    device.info = dataclasses.replace(device.info, memory_bytes=budget)
    devices = [device] if stream else [device, CpuDevice()]
    with step_runner(model, devices, stream_layers=stream) as runner:
        split = runner.plan.split
        assert bool(split.streamed) == stream
        assert stream or 0 < split.layers.count(0) < 6
        found = logits_of(runner, TOKENS, [16, 17, 18, 35])
        assert row_error(found, expected) < 1e-4
        assert device.memory_in_use <= budget


def test_a_model_is_divided_between_gpu_and_cpu(
    device: VulkanDevice, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models("tiny-llama", "f16"))
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, TOKENS)
    with step_runner(model, [device, CpuDevice()], first_layers=1) as runner:
        assert {segment.device for segment in runner.plan.segments} == {0, 1}
        assert row_error(logits_of(runner, TOKENS, [16, 17, 18, 35]), expected) < 1e-4


def test_a_greedy_step_downloads_a_token_and_records_nothing(
    device: VulkanDevice,
    calls: list[str],
    tiny_models: TinyModels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    downloaded: list[int] = []
    read, read_result = device._read, device._read_result

    def counted(view: View) -> bytes:
        downloaded.append(view.size)
        return read(view)

    def counted_result(recording: Recording, number: int) -> bytes:
        downloaded.extend(view.size for view in recording.results)
        return read_result(recording, number)

    model = load_model(tiny_models("tiny-llama", "f16"))
    with step_runner(model, [device]) as runner:
        for position in range(8):
            if position == 4:  # by now the bucket is recorded and its time is known
                calls.clear()
                monkeypatch.setattr(device, "_read", counted)
                monkeypatch.setattr(device, "_read_result", counted_result)
            chunk = Chunk([TOKENS[position]], position + 1, [1], [0])
            runner.run(Batch((chunk,)), want_logits=False)
        made = Counter(calls)
    assert downloaded == [4] * 4
    assert made["vkQueueSubmit"] == 4
    assert made.keys() <= {"vkQueueSubmit", "vkResetFences", "vkGetFenceStatus", "vkWaitForFences"}


def test_every_dispatch_is_timed(device: VulkanDevice, tiny_models: TinyModels) -> None:
    model = load_model(tiny_models("tiny-llama", "f16"))
    with step_runner(model, [device]) as runner:
        chunk = Chunk(TOKENS[:5], 5, [1], [4])
        kernels = runner.run(Batch((chunk,)), timed=True).kernels
    assert len(kernels) > 10
    assert {kernel.device for kernel in kernels} == {"vulkan"}
    assert all(kernel.duration_s >= 0 for kernel in kernels)
    assert sum(kernel.duration_s for kernel in kernels) > 0
    assert [k.start_s for k in kernels] == sorted(k.start_s for k in kernels)


def test_smollm2_answers_as_it_does_on_the_cpu(device: VulkanDevice, smollm2_path: Path) -> None:
    """Greedy tokens are the CPU's wherever its two best logits are not nearly the same.

    The CPU rounds activations to int8, so logits nearer than NEAR_TIE may change places.
    """
    with LLM(smollm2_path, device, context=64) as llm:
        assert {segment.device for segment in llm.plan.segments} == {0}
        prompt = llm.tokenize("The capital of France is")
        answer = llm.generate(prompt, max_tokens=12)
    assert "Paris" in answer.text
    with LLM(smollm2_path, "cpu", context=64) as llm:
        rows = llm.logits([*prompt, *answer.tokens])[len(prompt) - 1 : -1]
    assert len(rows) == len(answer.tokens)
    best = np.sort(rows, axis=1)
    clear = best[:, -1] - best[:, -2] > NEAR_TIE
    assert clear.sum() >= 4
    tokens = np.array(answer.tokens)
    np.testing.assert_array_equal(rows.argmax(axis=1)[clear], tokens[clear])
    chosen = rows[np.arange(len(rows)), tokens]
    assert (best[:, -1] - chosen <= NEAR_TIE).all()
