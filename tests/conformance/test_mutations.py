"""Kernels and devices that are wrong on purpose: the suite must find each of them.

The mutations are of the reference device, which shows what the checks can see on any device.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import pytest
from tests.conformance.programs import TOLERANCE, random_program

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.backends.reference import device as reference
from crossinfer.backends.reference.kernels import ReferenceKernel, run_dispatch
from crossinfer.core.dtypes import Array, DType
from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Op
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.hazards import HazardKind, HazardTracker
from crossinfer.hal.kernel import Dispatch, Kernel, Lowering, OpDescription, Operand
from crossinfer.verify.cases import all_cases, cases_of
from crossinfer.verify.data import Random
from crossinfer.verify.runner import Outcome, run_case

Inputs = dict[str, Array]
Mutation = Callable[[Op, Inputs], dict[str, Array]]


class MutatedDevice(ReferenceDevice):
    """Computes `mutation(op, inputs)` instead of `op.compute(inputs)`."""

    def __init__(self, mutation: Mutation) -> None:
        super().__init__()
        self._mutation = mutation

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        assert isinstance(op, Op)
        (lowering,) = super().lower(op, operands)
        (lowered,) = lowering.dispatches
        wrong = copy.copy(op)
        object.__setattr__(wrong, "compute", functools.partial(self._mutation, op))
        kernel = Kernel(lowered.kernel.name, ReferenceKernel(wrong, tuple(operands.items())))
        return (Lowering((dataclasses.replace(lowered, kernel=kernel),)),)


def failures(device: ReferenceDevice, op: str, rng: Random) -> list[Outcome]:
    """The outcomes of an op's cases that did not pass."""
    with device:
        outcomes = [o for case in cases_of(op) for o in run_case(device, case, rng)]
    return [outcome for outcome in outcomes if not outcome.passed]


def skipped_block(op: Op, inputs: Inputs) -> dict[str, Array]:
    """The last 32 elements of a row are not summed."""
    x = inputs["x"].copy()
    x[:, -32:] = 0
    return op.compute({**inputs, "x": x})


def skipped_kv_block(op: Op, inputs: Inputs) -> dict[str, Array]:
    """The first KV block of each sequence that has more than it is not seen."""
    rows = np.diff(inputs["query_start"])
    longer = inputs["kv_len"] - rows >= BLOCK_TOKENS
    table = np.where(longer[:, None], np.roll(inputs["block_table"], -1, 1), inputs["block_table"])
    kv_len = inputs["kv_len"] - BLOCK_TOKENS * longer
    return op.compute({**inputs, "block_table": table, "kv_len": kv_len})


def wrong_tail_row(op: Op, inputs: Inputs) -> dict[str, Array]:
    """The last row is computed like the one before it."""
    made = op.compute(inputs)
    for values in made.values():
        values[-1] = values[max(0, len(values) - 2)]
    return made


def wrong_tail_column(op: Op, inputs: Inputs) -> dict[str, Array]:
    made = op.compute(inputs)
    made["output"][:, -1] = 0
    return made


def wrong_scale(op: Op, inputs: Inputs) -> dict[str, Array]:
    """Off by a thousandth."""
    made = op.compute(inputs)
    made["output"] *= 1.001
    return made


def wrong_attention_scale(op: Op, inputs: Inputs) -> dict[str, Array]:
    assert isinstance(op, Attention)
    return dataclasses.replace(op, scale=op.scale * 1.01).compute(inputs)


def wider_window(op: Op, inputs: Inputs) -> dict[str, Array]:
    assert isinstance(op, Attention)
    window = None if op.window is None else op.window + 1
    return dataclasses.replace(op, window=window).compute(inputs)


def forgotten_operand(name: str) -> Mutation:
    def mutation(op: Op, inputs: Inputs) -> dict[str, Array]:
        return op.compute({k: v for k, v in inputs.items() if k != name})

    mutation.__name__ = f"forgotten_{name}"
    return mutation


def unwritten_output(op: Op, inputs: Inputs) -> dict[str, Array]:
    made = op.compute(inputs)
    made.popitem()
    return made


def unwritten_last_row(op: Op, inputs: Inputs) -> dict[str, Array]:
    made = op.compute(inputs)
    for values in made.values():
        values[-1] = np.nan if values.dtype.kind == "f" else -1  # what poison could look like
    return made


def changed_input(op: Op, inputs: Inputs) -> dict[str, Array]:
    made = op.compute(inputs)
    next(iter(inputs.values())).reshape(-1)[-1] += 1
    return made


def write_to_a_wrong_slot(op: Op, inputs: Inputs) -> dict[str, Array]:
    op.compute(inputs)
    inputs["cache"][-1, 1, 0, 3, 2] += 1
    return {}


def touch_of_a_wrong_slot(op: Op, inputs: Inputs) -> dict[str, Array]:
    """Smaller than any tolerance, but nobody may write there."""
    op.compute(inputs)
    cell = inputs["cache"][-1, 1, 0, 3, 2:3]
    cell[...] = np.nextafter(cell, cell.dtype.type(np.inf))
    return {}


def keys_not_rotated(op: Op, inputs: Inputs) -> dict[str, Array]:
    q = inputs["q"].copy()
    identity = np.broadcast_to(np.array([1, 0], np.float32), inputs["table"].shape)
    op.compute({**inputs, "table": identity})
    inputs["q"][...] = q
    op.compute({**inputs, "cache": inputs["cache"].copy()})
    return {}


def other_pairs(op: Op, inputs: Inputs) -> dict[str, Array]:
    assert isinstance(op, RopeKv)
    return dataclasses.replace(op, interleaved=not op.interleaved).compute(inputs)


def no_epsilon(op: Op, inputs: Inputs) -> dict[str, Array]:
    assert isinstance(op, RmsNorm)
    return dataclasses.replace(op, eps=0.0).compute(inputs)


def last_of_a_tie(_op: Op, inputs: Inputs) -> dict[str, Array]:
    x = inputs["x"]
    usable = np.isfinite(np.max(x, axis=1))
    return {"output": np.where(usable, x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1), -1)}


def bad_rows_unnoticed(_op: Op, inputs: Inputs) -> dict[str, Array]:
    return {"output": np.argmax(inputs["x"], axis=1)}


def unstable_order(op: Op, inputs: Inputs) -> dict[str, Array]:
    """Of equal elements the higher index first."""
    made = op.compute({"x": inputs["x"][:, ::-1]})
    return made | {"indices": inputs["x"].shape[1] - 1 - made["indices"]}


MUTATIONS: tuple[tuple[str, Mutation], ...] = (
    *[("linear", forgotten_operand(name)) for name in ("bias", "gate", "residual")],
    *[("linear", m) for m in (skipped_block, wrong_tail_row, wrong_tail_column, wrong_scale)],
    *[("linear", m) for m in (unwritten_output, unwritten_last_row, changed_input)],
    *[("embed", m) for m in (wrong_tail_row, wrong_scale, unwritten_output, changed_input)],
    *[("rms_norm", m) for m in (no_epsilon, wrong_tail_row, wrong_scale, unwritten_output)],
    ("rms_norm", forgotten_operand("residual")),
    *[("attention", m) for m in (skipped_kv_block, wrong_attention_scale, wider_window)],
    *[("attention", m) for m in (wrong_scale, unwritten_output, changed_input)],
    *[("rope_kv", m) for m in (write_to_a_wrong_slot, touch_of_a_wrong_slot)],
    *[("rope_kv", m) for m in (keys_not_rotated, other_pairs)],
    *[("swiglu", m) for m in (wrong_tail_column, wrong_scale, unwritten_output)],
    *[("argmax", m) for m in (last_of_a_tie, bad_rows_unnoticed, unwritten_output)],
    *[("top_k", m) for m in (unstable_order, unwritten_output, wrong_tail_row)],
)


@pytest.mark.parametrize(
    ("op", "mutation"), MUTATIONS, ids=lambda m: m if isinstance(m, str) else m.__name__
)
def test_wrong_kernels_fail(op: str, mutation: Mutation, rng: Random) -> None:
    assert failures(MutatedDevice(mutation), op, rng)


def test_a_right_kernel_through_the_same_door_passes(rng: Random) -> None:
    for op in {case.op.name for case in all_cases()}:
        assert failures(MutatedDevice(lambda op, inputs: op.compute(inputs)), op, rng) == []


@pytest.mark.parametrize("offset", [-1, 0], ids=["before", "behind"])
@pytest.mark.parametrize("name", ["x", "output"])
def test_a_write_beside_a_tensor_fails(
    monkeypatch: pytest.MonkeyPatch, rng: Random, name: str, offset: int
) -> None:
    def overrun(dispatch: Dispatch, views: Sequence[Array]) -> None:
        run_dispatch(dispatch, views)
        kernel = dispatch.kernel.handle
        assert isinstance(kernel, ReferenceKernel)
        number = [operand for operand, _ in kernel.operands].index(name)
        view = dispatch.bindings[number].view
        memory = cast(Array, view.buffer.handle)
        memory[view.offset - 1 if offset else view.end] = 0

    monkeypatch.setattr(reference, "run_dispatch", overrun)
    found = failures(ReferenceDevice(), "linear", rng)
    assert len(found) == len(cases_of("linear"))
    sentence = "It changed the input x" if name == "x" else "It wrote outside of output."
    assert all(sentence in outcome.reason for outcome in found)


def test_a_dropped_barrier_fails(monkeypatch: pytest.MonkeyPatch, rng: Random) -> None:
    monkeypatch.setattr(HazardTracker, "before", lambda *_: None)
    with ReferenceDevice() as device:
        assert any(random_program(device, rng).run() > TOLERANCE for _ in range(20))


@pytest.mark.parametrize(
    ("first", "second"),
    [((0, 1), (1, 2)), ((0, 1), (2, 0)), ((0, 1), (2, 1))],
    ids=[kind.value for kind in HazardKind],
)
def test_each_kind_of_hazard_shows(
    monkeypatch: pytest.MonkeyPatch, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Two copies, (from, to), whose order matters."""
    contents = [bytes([number]) * 256 for number in range(3)]
    expected = list(contents)
    for source, target in (first, second):
        expected[target] = expected[source]

    def runs_right(device: Device) -> bool:
        slots = [device.upload(data, (64,), DType.I32).view() for data in contents]
        executor = Executor(device)
        for source, target in (first, second):
            executor.copy_region(slots[source], slots[target])
        executor.submit_and_wait()
        return [device.download(slot) for slot in slots] == expected

    with ReferenceDevice() as device:
        assert all(runs_right(device) for _ in range(60))
        monkeypatch.setattr(HazardTracker, "before", lambda *_: None)
        assert not all(runs_right(device) for _ in range(60))


@pytest.mark.parametrize("op", sorted({case.op.name for case in all_cases()}))
def test_a_wrong_result_of_a_device_fails(op: str, rng: Random) -> None:
    for case in cases_of(op):
        with FaultyDevice(ReferenceDevice(), [Fault(FaultKind.WRONG_RESULT, op)]) as device:
            (outcome,) = run_case(device, case, rng)
        assert not outcome.passed, case.name
