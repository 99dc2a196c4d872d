"""Products of many rows: how K is cut, what adds the parts up, and when attention goes by tiles."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from tests.kernels.test_shader_lowering import attention_inputs, make_kernel
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import Q4_K, StorageType
from crossinfer.graph.op import Operands, float32
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.kernels.dispatching import Capabilities
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.lowering import lower
from crossinfer.verify.case import Case, random_inputs
from crossinfer.verify.runner import run_case

LARGE_DEVICE = Capabilities(fill_groups=528, max_view_bytes=(1 << 32) - 1)
SPLITS, SPLIT_STEPS, FOLLOWS, STRIDE = 5, 6, 7, 8
"""Words of the constants of linear_mat and linear_sum."""


def operands_of(T: int, N: int, K: int, storage: StorageType = DType.F16) -> Operands:
    inputs = {"x": float32(T, K), "weight": Operand((N, K), storage, Role.WEIGHT)}
    return {**inputs, **Linear().infer(inputs)}


def first_way(operands: Operands, capabilities: Capabilities = LARGE_DEVICE) -> Lowering:
    return lower(Linear(), operands, capabilities, make_kernel)[0]


def words(dispatch: LoweredDispatch) -> tuple[int, ...]:
    return struct.unpack(f"<{len(dispatch.constants) // 4}I", dispatch.constants)


def test_narrow_products_are_cut_and_wide_ones_are_not() -> None:
    assert len(first_way(operands_of(512, 18944, 3584)).dispatches) == 1
    narrow = first_way(operands_of(512, 512, 3584))
    assert [name.partition("[")[0] for name in narrow.kernel_names] == ["linear_mat", "linear_sum"]
    assert narrow.dispatches[0].grid[2] == words(narrow.dispatches[0])[SPLITS] > 1
    assert len(first_way(operands_of(512, 512, 3584), Capabilities(4)).dispatches) == 1


@pytest.mark.parametrize("fill_groups", [1, 16, 528, 4096])
def test_parts_cover_every_step_once(fill_groups: int) -> None:
    capabilities = Capabilities(fill_groups, (1 << 32) - 1)
    for T, N, K in itertools.product((17, 64, 512, 4096), (5, 512, 3584), (16, 40, 3584, 18944)):
        for way in lower(Linear(), operands_of(T, N, K), capabilities, make_kernel):
            mat = way.dispatches[0]
            splits, split_steps = words(mat)[SPLITS : SPLIT_STEPS + 1]
            steps = -(-K // 16)
            assert (splits - 1) * split_steps < steps <= splits * split_steps
            assert mat.grid[2] == splits
            assert (len(way.dispatches) == 1) == (splits == 1 and N % 4 == 0)
            parts = splits * T * 4 * (-(-N // 4) * 4)
            assert sum(way.scratch.values()) == (parts if len(way.dispatches) > 1 else 0)
            assert sum(way.scratch.values()) <= 1 << 26


@pytest.fixture
def device(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[VulkanDevice]:
    """One that cuts K whenever there is enough of it."""
    del compiler
    with open_vulkan_or_skip() as opened:
        monkeypatch.setattr(opened, "_capabilities", dataclasses.replace(LARGE_DEVICE))
        yield opened


def cut_cases() -> Iterator[Case]:
    """Columns of the output in whole vectors and not, all that may follow, odd rows of x."""
    for storage, K in ((DType.F16, 2336), (DType.BF16, 1003), (DType.F32, 1005), (Q4_K, 2304)):
        for T, N in ((33, 44), (66, 139)):
            yield _case(T, N, K, storage)


def whole_cases() -> Iterator[Case]:
    """Too few columns of x to cut, whole vectors of the output."""
    for T, N in ((17, 12), (33, 140), (66, 132)):
        yield _case(T, N, 40, DType.F16)


def _case(T: int, N: int, K: int, storage: StorageType) -> Case:
    inputs = {
        "x": float32(T, K),
        "weight": Operand((N, K), storage, Role.WEIGHT),
        "bias": float32(N),
        "gate": float32(T, N),
        "residual": float32(T, N),
    }

    def make(rng: np.random.Generator) -> dict[str, np.ndarray]:
        made = random_inputs(rng, inputs)
        for name in made.keys() - {"weight"}:  # elements of about one
            made[name] *= np.float32(inputs[name].shape[-1] ** 0.5)
        return made

    return Case(Linear(), inputs, "cut", make)


def test_what_follows_a_cut_product(device: VulkanDevice) -> None:
    rng = np.random.default_rng()
    for case in cut_cases():
        kernels = {k for way in device.lower(case.op, case.operands()) for k in way.kernel_names}
        assert "linear_sum" in kernels
        failed = [o.reason for o in run_case(device, case, rng) if not o.passed]
        assert failed == []


def test_what_follows_a_product_in_one_dispatch(device: VulkanDevice) -> None:
    rng = np.random.default_rng()
    for case in whole_cases():
        assert len(device.lower(case.op, case.operands())[0].dispatches) == 1
        failed = [o.reason for o in run_case(device, case, rng) if not o.passed]
        assert failed == []


def _changed(number: int, change: Callable[[int], int], kernel: str) -> object:
    def apply(dispatch: LoweredDispatch) -> LoweredDispatch:
        if not dispatch.kernel.name.startswith(kernel):
            return dispatch
        values = list(words(dispatch))
        values[number] = change(values[number])
        return dataclasses.replace(dispatch, constants=struct.pack(f"<{len(values)}I", *values))

    return apply


@pytest.mark.parametrize(
    ("cases", "kernel", "number", "change"),
    [
        (cut_cases, "linear_sum", SPLITS, lambda splits: splits - 1),
        (cut_cases, "linear_sum", FOLLOWS, lambda follows: follows & 5),
        (cut_cases, "linear_sum", STRIDE, lambda stride: stride - 1),
        (cut_cases, "linear_mat", SPLIT_STEPS, lambda steps: steps - 1),
        (whole_cases, "linear_mat", FOLLOWS, lambda follows: follows & 6),
        (whole_cases, "linear_mat", FOLLOWS, lambda follows: follows & 5),
        (whole_cases, "linear_mat", FOLLOWS, lambda follows: follows & 3),
        (whole_cases, "linear_mat", STRIDE, lambda stride: stride - 4),
    ],
    ids=[
        "a part is forgotten",
        "the gate of a sum",
        "another stride of a sum",
        "a step is forgotten",
        "the bias",
        "the gate",
        "the residual",
        "another stride",
    ],
)
def test_a_fault_is_found(
    device: VulkanDevice,
    monkeypatch: pytest.MonkeyPatch,
    cases: Callable[[], Iterator[Case]],
    kernel: str,
    number: int,
    change: Callable[[int], int],
) -> None:
    whole, apply = device.lower, _changed(number, change, kernel)
    assert callable(apply)

    def lower_wrongly(op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return [
            dataclasses.replace(way, dispatches=tuple(map(apply, way.dispatches)))
            for way in whole(op, operands)[:1]
        ]

    monkeypatch.setattr(device, "lower", lower_wrongly)
    case = next(cases())
    assert not all(o.passed for o in run_case(device, case, np.random.default_rng()))


def _attention_kernels(rows: int, sequences: int, capabilities: Capabilities) -> list[str]:
    inputs = attention_inputs(rows, sequences, 128, (28, 4, 128))
    op = Attention(128, 0.1)
    ways = lower(op, {**inputs, **op.infer(inputs)}, capabilities, make_kernel)
    return [way.kernel_names[0].partition("[")[0] for way in ways]


def test_tiles_of_attention_are_for_many_rows() -> None:
    assert _attention_kernels(512, 1, LARGE_DEVICE) == ["attention_tile", "attention_split"]
    assert _attention_kernels(16, 1, LARGE_DEVICE) == ["attention_split", "attention_tile"]
    assert _attention_kernels(512, 512, LARGE_DEVICE)[0] == "attention_split"


def test_without_the_groupshared_memory_of_a_tile_there_is_a_way() -> None:
    small = dataclasses.replace(LARGE_DEVICE, shared_bytes=1 << 14)
    assert _attention_kernels(512, 1, small) == ["attention_split"]
