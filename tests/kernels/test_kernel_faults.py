"""Faults that the cases must find on a Vulkan device: a lost row, unit, part of the tokens, sum."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.vulkan import VulkanDevice
from crossinfer.hal.kernel import LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.kernels.dxc import Compiler
from crossinfer.verify.cases import cases_of
from crossinfer.verify.runner import run_case

Change = Callable[[LoweredDispatch], LoweredDispatch]


@pytest.fixture
def device(compiler: Compiler) -> Iterator[VulkanDevice]:
    del compiler
    with open_vulkan_or_skip() as opened:
        yield opened


def constant(kernel: str, number: int, change: Callable[[int], int]) -> Change:
    """Changes one constant of a family of kernels."""

    def apply(dispatch: LoweredDispatch) -> LoweredDispatch:
        if not dispatch.kernel.name.startswith(kernel):
            return dispatch
        words = list(struct.unpack(f"<{len(dispatch.constants) // 4}I", dispatch.constants))
        words[number] = change(words[number])
        return dataclasses.replace(dispatch, constants=struct.pack(f"<{len(words)}I", *words))

    return apply


def one_group_less(kernel: str) -> Change:
    """Leaves the last groups of a grid out."""

    def apply(dispatch: LoweredDispatch) -> LoweredDispatch:
        x, y, z = dispatch.grid
        if not dispatch.kernel.name.startswith(kernel) or x == 1:
            return dispatch
        return dataclasses.replace(dispatch, grid=(x - 1, y, z))

    return apply


FAULTS: Mapping[str, tuple[str, Change]] = {
    "sound": ("swiglu", lambda dispatch: dispatch),
    "vec: the last row is left out": ("linear[q4_1]", constant("linear_vec", 0, lambda T: T - 1)),
    "vec: the last unit is left out": (
        "linear[q4_1]",
        constant("linear_vec", 2, lambda K: max(32, K - 32)),
    ),
    "vec: teams of other lanes": ("linear[q8_0]", constant("linear_vec", 5, lambda n: n * 2)),
    "vec: the residual is forgotten": ("linear[f16]", constant("linear_vec", 6, lambda f: f & 3)),
    "mat: the last row is left out": ("linear[q4_1]", constant("linear_mat", 0, lambda T: T - 1)),
    "mat: the last unit is left out": (
        "linear[q4_1]",
        constant("linear_mat", 2, lambda K: max(32, K - 32)),
    ),
    "mat: the gate is forgotten": ("linear[f16]", constant("linear_sum", 7, lambda f: f & 5)),
    "attention: a table of another width": (
        "attention[f16]",
        constant("attention_split", 4, lambda B: B - 1),
    ),
    "attention: the window is off by one": (
        "attention[f16]",
        constant("attention_tile", 5, lambda window: window - 1),
    ),
    "attention: the last part is left out": ("attention[f16]", one_group_less("attention_split")),
    "rope_kv: another sequence's table": ("rope_kv[f16]", constant("rope_kv", 4, lambda B: B - 1)),
    "rms_norm: the last run is left out": ("rms_norm", constant("rms_norm", 0, lambda n: n - 1)),
    "rms_norm: an element is left out": (
        "rms_norm",
        constant("rms_norm", 1, lambda D: D - 1),
    ),
    "embed: the last row of the table": ("embed[f16]", constant("embed", 0, lambda V: V - 1)),
    "argmax: the last element is left out": ("argmax", constant("argmax", 2, lambda n: n - 1)),
    "top_k: the last element is left out": ("top_k", constant("top_k", 0, lambda V: V - 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    variant, change = FAULTS[fault]
    whole = device.lower

    def lower(op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        return [
            dataclasses.replace(lowering, dispatches=tuple(map(change, lowering.dispatches)))
            for lowering in whole(op, operands)
        ]

    monkeypatch.setattr(device, "lower", lower)
    rng = np.random.default_rng()
    outcomes = [o for case in cases_of(variant) for o in run_case(device, case, rng)]
    assert all(outcome.passed for outcome in outcomes) == (fault == "sound")
