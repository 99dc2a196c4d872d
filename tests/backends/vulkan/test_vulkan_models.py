"""Small random models on a Vulkan device, and what a step costs the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.buffer import View
from crossinfer.models.model import load_model

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


def test_a_greedy_step_downloads_a_token_and_records_nothing(
    device: VulkanDevice,
    calls: list[str],
    tiny_models: TinyModels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    downloaded: list[int] = []
    read = device._read

    def counted(view: View) -> bytes:
        downloaded.append(view.size)
        return read(view)

    model = load_model(tiny_models("tiny-llama", "f16"))
    with step_runner(model, [device]) as runner:
        for position in range(8):
            if position == 4:  # by now the bucket is recorded and its time is known
                calls.clear()
                monkeypatch.setattr(device, "_read", counted)
            chunk = Chunk([TOKENS[position]], position + 1, [1], [0])
            runner.run(Batch((chunk,)), want_logits=False)
        made = set(calls)
    assert downloaded == [4] * 4
    assert made <= {"vkQueueSubmit", "vkResetFences", "vkGetFenceStatus", "vkWaitForFences"}


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
