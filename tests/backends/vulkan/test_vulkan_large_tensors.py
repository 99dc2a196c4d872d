"""Weights that are larger than a view or an allocation of the device, with small limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.backends.vulkan.test_vulkan_models import TOKENS
from tests.steps import logits_of, step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.backends.vulkan import VulkanDevice, transfers
from crossinfer.backends.vulkan.memory import Pieces, parts_of
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import KernelUnsupported, OutOfDeviceMemory
from crossinfer.formats.blocks import Q4_K, StorageType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.kernels.layout import row_bytes, weight_bytes
from crossinfer.models.model import load_model
from crossinfer.verify.case import Case, random_inputs
from crossinfer.verify.data import Random
from crossinfer.verify.runner import run_case

K, N = 512, 300
ROWS = 128
"""Rows of a weight that are seen at once, so that N takes three ranges."""
STORAGES: list[StorageType] = [DType.F16, Q4_K]
LIMITS = ["views", "allocations"]


@pytest.fixture
def rng() -> Random:
    return np.random.default_rng()


def restrict(device: VulkanDevice, limit: str, size: int) -> None:
    """Have the device take no larger views, or no larger allocations either."""
    for words in (1, transfers.CHUNK_BYTES // 4):  # no device's limit is below staging memory
        buffer = device.upload(np.zeros(words, np.int32), (words,), DType.I32)
        device.download(buffer)
        buffer.free()
    device._capabilities = dataclasses.replace(device._capabilities, max_view_bytes=size)
    if limit == "allocations":
        device.native.physical.max_allocation = size


def check(device: VulkanDevice, case: Case, rng: Random) -> None:
    """The weight is seen in three ranges, and the result is right."""
    lowerings = device.lower(case.op, case.operands())
    for lowering in lowerings:
        seen = [{a.operand for a in run.arguments} for run in lowering.dispatches]
        assert sum(not names.isdisjoint({"weight", "table"}) for names in seen) == 3
    outcomes = run_case(device, case, rng)
    assert len(outcomes) == len(lowerings)
    for outcome in outcomes:
        assert outcome.passed, outcome.reason


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("T", [1, 3, 17])
@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.label)
def test_linear(
    device: VulkanDevice, limit: str, storage: StorageType, T: int, rng: Random
) -> None:
    restrict(device, limit, ROWS * row_bytes(K, storage) + 100)
    inputs = {
        "x": float32(T, K),
        "weight": Operand((N, K), storage, Role.WEIGHT),
        "bias": float32(N),
        "gate": float32(T, N),
        "residual": float32(T, N),
    }
    case = Case(Linear(), inputs, "in ranges", lambda rng: random_inputs(rng, inputs))
    check(device, case, rng)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.label)
def test_embed(device: VulkanDevice, limit: str, storage: StorageType, rng: Random) -> None:
    restrict(device, limit, ROWS * row_bytes(K, storage) + 100)
    ids = np.array([0, 127, 128, 255, 256, N - 1, N, -1, 2**31 - 1, 5, 5], np.int32)
    inputs = {
        "ids": Operand(ids.shape, DType.I32),
        "table": Operand((N, K), storage, Role.WEIGHT),
    }

    def make(rng: Random) -> dict[str, Array]:
        return {"ids": ids, **random_inputs(rng, {"table": inputs["table"]})}

    check(device, Case(Embed(), inputs, "in ranges", make), rng)


def test_pieces_are_written_read_and_freed(device: VulkanDevice, rng: Random) -> None:
    piece = ROWS * row_bytes(K, DType.F16)
    restrict(device, "allocations", piece)
    data = rng.integers(0, 256, weight_bytes((N, K), DType.F16), dtype=np.uint8)
    in_use = device.memory_in_use
    buffer = device.upload(data, (N, K), DType.F16, Role.WEIGHT)
    assert isinstance(buffer.handle, Pieces)
    assert [part.size for part in parts_of(buffer)][:2] == [piece, piece]
    assert len(parts_of(buffer)) == 3
    assert device.download(buffer) == data.tobytes()
    assert device.download(buffer.view(piece - 256, 512)) == data[piece - 256 :][:512].tobytes()
    device.write(buffer.view(piece - 256, 512), bytes(512))
    data[piece - 256 :][:512] = 0
    assert device.download(buffer) == data.tobytes()
    recorder = device.recorder()
    target = device.alloc((256,), DType.I32)
    recorder.copy_region(buffer.view(piece - 512, 1024), target.view())
    with pytest.raises(KernelUnsupported, match="across its pieces"):
        recorder.finish()
    buffer.free()
    target.free()
    assert device.memory_in_use == in_use


def test_what_is_not_a_weight_is_too_large(device: VulkanDevice) -> None:
    device.native.physical.max_allocation = 1 << 20
    with pytest.raises(OutOfDeviceMemory):
        device.alloc((1 << 20,), DType.F32)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_model_with_a_large_vocabulary(
    device: VulkanDevice, limit: str, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models("tiny-llama", "f32", vocab_size=4096))
    table = model.operands["model.embed_tokens.weight"]
    with step_runner(model, [ReferenceDevice()]) as runner:
        expected = logits_of(runner, TOKENS)
    restrict(device, limit, weight_bytes(table.shape, table.storage) * 2 // 3)
    with step_runner(model, [device]) as runner:
        plan = runner.plan
        (head,) = (
            step
            for segment in plan.segments
            for step in segment.steps
            if plan.graph.outputs["logits"] in step.node.outputs.values()
        )
        kernels = head.lowering.kernel_names
        assert kernels[: len(kernels) // 2] == kernels[len(kernels) // 2 :]
        assert row_error(logits_of(runner, TOKENS, [1, 16, 30]), expected) < 1e-4


def test_a_cache_that_is_too_large_goes_elsewhere_and_says_why(
    device: VulkanDevice, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models("tiny-llama", "f16"))
    restrict(device, "views", 1 << 16)
    with step_runner(model, [device, ReferenceDevice()]) as runner:
        reasons = {
            step.node.op.name: step.reason
            for segment in runner.plan.segments
            if segment.device == 1
            for step in segment.steps
        }
    # 41 blocks of keys and values of 3 heads, 16 slots of 16 elements of 4 bytes
    assert reasons["rope_kv"] == (
        "vulkan: rope_kv has to see 251.9 kB of cache at once, more than 65.5 kB"
    )
