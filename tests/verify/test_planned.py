"""Cases that come from plans: the plan's kernels, at sizes that cost little."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import Q4_K, Q8_0, StorageType
from crossinfer.graph.op import Op, Operands, float32
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.kernel import Kernel, Lowering, OpDescription, Operand, shape_text
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify.pending import PlannedOp, unverified
from crossinfer.verify.planned import batch_layout, planned_case
from crossinfer.verify.repeated import PERIOD, repeated_rows
from crossinfer.verify.trial import verify_op, verify_ops

DEVICES: dict[str, Callable[[], Device]] = {
    "reference": ReferenceDevice,
    "cpu": CpuDevice,
    "vulkan": open_vulkan_or_skip,
}
K, F, V, D, HEADS, KV_HEADS = 1536, 8960, 151_936, 128, 12, 2


def weight(storage: StorageType, *shape: int) -> Operand:
    return Operand(shape, storage, Role.WEIGHT)


def tables(S: int, B: int) -> dict[str, Operand]:
    return {
        "query_start": Operand((S + 1,), DType.I32),
        "kv_len": Operand((S,), DType.I32),
        "block_table": Operand((S, B), DType.I32),
    }


def step(T: int, S: int, R: int) -> Iterator[tuple[Op, Operands]]:
    """The ops of a step of a model of 1.5B parameters, at a context of 4096."""
    cache = Operand((257, 2, KV_HEADS, 16, D), DType.F16, Role.KV_CACHE)
    q, k = float32(T, HEADS * D), float32(T, KV_HEADS * D)
    yield Embed(), {"ids": Operand((T,), DType.I32), "table": weight(Q8_0, V, K)}
    yield RmsNorm(1e-6), {"x": float32(T, K), "weight": float32(K)}
    yield Linear(), {"x": float32(T, K), "weight": weight(Q4_K, HEADS * D, K)}
    yield (
        Linear(),
        {
            "x": float32(T, F),
            "weight": weight(Q4_K, K, F),
            "residual": float32(T, K),
        },
    )
    yield Linear(), {"x": float32(R, K), "weight": weight(Q8_0, V, K)}
    yield (
        RopeKv(D),
        {
            "q": q,
            "k": k,
            "v": k,
            "table": float32(4096, D // 2, 2),
            **tables(S, 256),
            "cache": cache,
        },
    )
    yield (
        RopeAttention(D, D**-0.5),
        {
            "q": q,
            "k": k,
            "v": k,
            "table": float32(4096, D // 2, 2),
            **tables(S, 256),
            "cache": cache,
        },
    )
    yield Attention(D, D**-0.5), {"q": q, "cache": cache, **tables(S, 256)}
    yield Swiglu(), {"gate": float32(T, F), "up": float32(T, F)}
    yield Argmax(), {"x": float32(R, V)}


def planned_ops(device: Device, T: int, S: int, R: int) -> list[PlannedOp]:
    found = []
    for op, inputs in step(T, S, R):
        made = op.infer(inputs)
        in_place = {rule.name for rule in op.outputs if rule.updates is not None}
        operands = {**inputs, **{n: o for n, o in made.items() if n not in in_place}}
        found += [PlannedOp(op, inputs, way) for way in device.lower(op, operands)[:1]]
    return found


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize(("T", "S", "R"), [(1, 1, 1), (4, 4, 4), (64, 2, 2)])
def test_cases_are_small_have_the_plans_kernels_and_pass(kind: str, T: int, S: int, R: int) -> None:
    with DEVICES[kind]() as device:
        for op in planned_ops(device, T, S, R):
            planned = planned_case(device, op.op, op.inputs, op.lowering.kernel_names)
            assert planned is not None, op
            assert set(planned.lowering.kernel_names) == set(op.lowering.kernel_names)
            elements = sum(math.prod(o.shape) for o in planned.case.operands().values())
            assert elements < 3e6, planned.case.name
            outcome = verify_op(device, op, np.random.default_rng(), exact=False)
            assert outcome is not None
            assert outcome.passed, outcome.reason


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 256])
@pytest.mark.parametrize("slots", [1, 2, 16])
@pytest.mark.parametrize("columns", [1, 4, 256])
def test_layouts_have_the_plans_sizes(rows: int, slots: int, columns: int) -> None:
    if rows > slots * columns * 16:
        pytest.skip("so many rows are not in such a table")
    inputs = {"q": float32(rows, 64), **tables(slots, columns)}
    layout = batch_layout(inputs)
    assert (layout.rows, layout.slots, layout.table_blocks) == (rows, slots, columns)
    for own, length in layout.sequences:
        assert 1 <= own <= length <= columns * 16


class Picky(ReferenceDevice):
    """Has one kernel of linear for each shape, as a library's operators do."""

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        (found,) = super().lower(op, operands)
        if not isinstance(op, Linear):
            return (found,)
        (run,) = found.dispatches
        kernel = Kernel("gemm", run.kernel.handle, per_shape=True)
        return (Lowering((dataclasses.replace(run, kernel=kernel),)),)


def linear_op(device: Device, T: int, N: int, length: int) -> PlannedOp:
    inputs = {"x": float32(T, length), "weight": weight(DType.F32, N, length)}
    operands = {**inputs, "output": float32(T, N)}
    return PlannedOp(Linear(), inputs, device.lower(Linear(), operands)[0])


def test_kernels_that_differ_by_shape_are_verified_at_each() -> None:
    store = VerdictStore(None)
    with Picky() as device:
        ops = [linear_op(device, 5, 600, 64), linear_op(device, 6, 600, 64)]
        assert unverified(device, ops, store) == ops
        (outcome,) = verify_ops(device, ops[:1], store)
        assert outcome.shape == ops[0].shape == "x 5x64, weight 600x64, output 5x600"
        assert unverified(device, ops, store) == ops[1:]
        (verdict,) = store.all()
        assert (verdict.kernel, verdict.shape, verdict.passed) == ("gemm", ops[0].shape, True)


def test_a_verdict_on_all_shapes_is_enough_for_other_kernels() -> None:
    store = VerdictStore(None)
    with ReferenceDevice() as device:
        ops = [linear_op(device, 5, 600, 64), linear_op(device, 6, 600, 64)]
        assert unverified(device, ops, store) == ops[:1]  # they share a kernel
        verify_ops(device, ops[:1], store)
        assert unverified(device, ops, store) == []
        (verdict,) = store.all()
        assert (verdict.kernel, verdict.shape) == ("linear[f32]", "")


def test_verification_ends_with_the_device() -> None:
    store = VerdictStore(None)
    fault = Fault(FaultKind.LOST, "swiglu")
    with FaultyDevice(ReferenceDevice(), [fault]) as device:
        outcomes = verify_ops(device, planned_ops(device, 1, 1, 1), store)
        assert [outcome.passed for outcome in outcomes][-1:] == [False]
        assert store.is_barred(device.info, "swiglu")
        assert store.find(device.info, "argmax") is None
        assert store.find(device.info, "attention[f16]") is not None


class Unknown(Argmax):
    """An op that planned cases know nothing of."""


def test_an_op_without_a_case_has_no_outcome() -> None:
    store = VerdictStore(None)
    with ReferenceDevice() as device:
        inputs = {"x": float32(1, 8)}
        lowering = device.lower(Unknown(), {**inputs, "output": Operand((1,), DType.I32)})[0]
        op = PlannedOp(Unknown(), inputs, lowering)
        assert verify_ops(device, [op], store) == []
        assert store.all() == []


@pytest.mark.parametrize("storage", [DType.F32, DType.F16, Q4_K])
def test_repeated_rows_mean_what_the_whole_product_means(storage: StorageType) -> None:
    rng = np.random.default_rng()
    length = 256
    inputs = {
        "x": float32(3, length),
        "weight": weight(storage, 2 * PERIOD + 7, length),
        "bias": float32(2 * PERIOD + 7),
        "residual": float32(3, 2 * PERIOD + 7),
    }
    case = repeated_rows(Linear(), inputs)
    stored = case.make(rng)
    assert {name: _bytes(stored[name]) for name in inputs} == {
        name: o.storage.bytes_for(o.shape) for name, o in inputs.items()
    }
    values = {name: case.values(stored, name) for name in inputs}
    whole = Linear().compute(values)["output"]
    np.testing.assert_allclose(case.expected(stored)["output"], whole, rtol=1e-12, atol=1e-12)


def _bytes(values: Array) -> int:
    return int(values.nbytes)


class Misplacing(ReferenceDevice):
    """Computes one far output from the weight's row before."""

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        del op
        return super().lower(WrongRow(), operands)


class WrongRow(Linear):
    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        made = super().compute(inputs)
        made["output"][:, 1000] = made["output"][:, 999]
        return made


def test_one_wrong_output_of_many_is_found() -> None:
    with Misplacing() as device:
        op = linear_op(device, 2, 1200, 64)
        outcome = verify_op(device, op, np.random.default_rng(), exact=True)
        assert outcome is not None
        assert not outcome.passed
    with ReferenceDevice() as device:
        outcome = verify_op(device, op, np.random.default_rng(), exact=True)
        assert outcome is not None
        assert outcome.passed
        assert outcome.shape == shape_text({**op.inputs, **op.outputs})
