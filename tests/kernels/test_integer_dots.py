"""Products by integer dot products: where they are offered, and that they round as they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, Q4_K, Q8_0, StorageType
from crossinfer.graph.op import Op, float32
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Kernel, Lowering, Operand
from crossinfer.kernels.activations import ROUNDING
from crossinfer.kernels.dispatching import Capabilities
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.lowering import lower
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.verify.case import Case
from crossinfer.verify.cases_linear import linear_inputs
from crossinfer.verify.data import Random
from crossinfer.verify.runner import run_lowering

NONE = Capabilities()
SLOW = Capabilities(integer_dots=True)
FAST = Capabilities(integer_dots=True, fast_integer_dots=True)


def case_of(op: Op, *storages: StorageType, tokens: int = 1) -> Case:
    """A product of 512 columns, with a folded norm if `op` has one."""
    names = {"linear": ("weight",), "gated_linear": ("gate_weight", "up_weight")}
    weights = names.get(op.name, ("q_weight", "k_weight", "v_weight"))
    inputs = {"x": float32(tokens, 512)} | {
        name: Operand((19, 512), storage, Role.WEIGHT)
        for name, storage in zip(weights, storages, strict=True)
    }
    if getattr(op, "eps", None) is not None:
        inputs["norm_weight"] = float32(512)
    return Case(op, inputs, "integer dots", lambda rng: linear_inputs(rng, inputs))


def are_integer(case: Case, capabilities: Capabilities) -> list[bool]:
    """Of each way to run a case by linear_vec, whether it rounds x."""

    def make_kernel(shader: ShaderKernel) -> Kernel:
        return Kernel(shader.name, shader)

    ways = lower(case.op, case.operands(), capabilities, make_kernel)
    vec = [way for way in ways if "_vec[" in way.kernel_names[0]]
    for way in vec:
        assert all(("dot" in name) == bool(way.quantized) for name in way.kernel_names)
        assert way.quantized in ({}, {"x": ROUNDING})
    return [bool(way.quantized) for way in vec]


@pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda storage: storage.label)
def test_they_come_first_where_they_are_fast(storage: StorageType) -> None:
    for case in (
        case_of(Linear(), storage),
        case_of(GatedLinear(1e-6), storage, storage),
        case_of(QkvLinear(1e-6), storage, Q8_0, Q4_K),
        case_of(GatedLinear(), storage, Q8_0),
    ):
        assert are_integer(case, NONE) == [False]
        assert are_integer(case, SLOW) == [False, True]
        assert are_integer(case, FAST) == [True, False]


def test_scalars_and_more_rows_are_multiplied_as_floats() -> None:
    for case in (
        case_of(Linear(), Q8_0, tokens=2),
        case_of(Linear(), DType.F16),
        case_of(QkvLinear(), Q8_0, Q8_0, DType.F16),
        case_of(GatedLinear(), DType.F32, Q8_0),
    ):
        assert are_integer(case, FAST) == [False]


@pytest.fixture(scope="module")
def device(compiler: Compiler) -> Iterator[VulkanDevice]:
    del compiler
    with open_vulkan_or_skip() as opened:
        if not opened.native.has_integer_dots:
            pytest.skip("This Vulkan driver has no dot products of packed bytes.")
        yield opened


@pytest.fixture
def rng() -> Random:
    return np.random.default_rng()


def integer_way(device: VulkanDevice, case: Case) -> Lowering:
    return next(way for way in device.lower(case.op, case.operands()) if way.quantized)


@pytest.mark.parametrize(
    "case",
    [
        case_of(Linear(), Q8_0),
        case_of(GatedLinear(1e-6), Q8_0, Q8_0),
        case_of(QkvLinear(1e-6), Q4_K, Q8_0, Q8_0),
    ],
    ids=lambda case: case.op.name,
)
def test_they_round_as_they_say(device: VulkanDevice, rng: Random, case: Case) -> None:
    """To float32's tolerance of what they say; of anything else only to that of 8 bits."""
    stored, way = case.make(rng), integer_way(device, case)
    assert run_lowering(device, case, way, stored).passed
    for other in ({}, {"x": dataclasses.replace(ROUNDING, group_elements=32)}):
        outcome = run_lowering(device, case, dataclasses.replace(way, quantized=other), stored)
        assert not outcome.passed
        assert 1e-5 < outcome.error < 0.05


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", [Linear(), GatedLinear(1e-6)], ids=lambda op: op.name)
def test_what_is_not_finite_stays_so(device: VulkanDevice, rng: Random, op: Op, bad: float) -> None:
    case = case_of(op, *(Q8_0,) * (1 + isinstance(op, GatedLinear)))
    way = integer_way(device, case)
    stored = case.make(rng)
    stored["x"][0, 300] = bad
    views = {
        name: device.upload(stored[name].tobytes(), kind.shape, kind.storage, kind.role).view()
        for name, kind in case.inputs.items()
    }
    output = device.alloc((1, 19), DType.F32)
    recorder = device.recorder()
    for dispatch in way.bind({**views, "output": output.view()}):
        recorder.dispatch(dispatch)
    device.submit(recorder.finish()).wait()
    result = np.frombuffer(device.download(output), np.float32)
    assert not np.isfinite(result[:19]).any()
    for view in (*views.values(), output.view()):
        view.buffer.free()
