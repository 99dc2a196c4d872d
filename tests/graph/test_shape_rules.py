"""What each op accepts; a refusal names the op, the rule and the operands."""

from __future__ import annotations

import pytest

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import PlanError
from crossinfer.formats.blocks import Q4_0, Q8_0
from crossinfer.graph.op import Op, Operands, float32
from crossinfer.graph.ops import OPS
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.kernel import MAX_BINDINGS, Operand


def int32(*shape: int) -> Operand:
    return Operand(shape, DType.I32)


TABLES = {"query_start": int32(3), "kv_len": int32(2), "block_table": int32(2, 4)}
CACHE = Operand((9, 2, 2, 16, 8), DType.F16, Role.KV_CACHE)

GOOD: dict[str, tuple[Op, dict[str, Operand], dict[str, Operand]]] = {
    "embed": (
        Embed(),
        {"ids": int32(3), "table": Operand((10, 64), Q4_0, Role.WEIGHT)},
        {"output": float32(3, 64)},
    ),
    "rms_norm": (
        RmsNorm(1e-5),
        {"x": float32(3, 24), "weight": float32(8), "residual": float32(3, 24)},
        {"output": float32(3, 24), "sum": float32(3, 24)},
    ),
    "linear": (
        Linear(),
        {
            "x": float32(3, 64),
            "weight": Operand((5, 64), Q4_0, Role.WEIGHT),
            "bias": float32(5),
            "gate": float32(3, 5),
            "residual": float32(3, 5),
        },
        {"output": float32(3, 5)},
    ),
    "gated_linear": (
        GatedLinear(eps=1e-6),
        {
            "x": float32(3, 64),
            "gate_weight": Operand((5, 64), Q4_0, Role.WEIGHT),
            "up_weight": Operand((5, 64), Q8_0, Role.WEIGHT),
            "gate_bias": float32(5),
            "up_bias": float32(5),
            "norm_weight": float32(64),
        },
        {"output": float32(3, 5)},
    ),
    "qkv_linear": (
        QkvLinear(eps=1e-6),
        {
            "x": float32(3, 64),
            "q_weight": Operand((6, 64), Q4_0, Role.WEIGHT),
            "k_weight": Operand((2, 64), Q4_0, Role.WEIGHT),
            "v_weight": Operand((2, 64), Q8_0, Role.WEIGHT),
            "q_bias": float32(6),
            "k_bias": float32(2),
            "v_bias": float32(2),
            "norm_weight": float32(64),
        },
        {"q": float32(3, 6), "k": float32(3, 2), "v": float32(3, 2)},
    ),
    "rope_kv": (
        RopeKv(8),
        {
            "q": float32(3, 48),
            "k": float32(3, 16),
            "v": float32(3, 16),
            "table": float32(64, 4, 2),
            **TABLES,
            "cache": CACHE,
        },
        {"rotated": float32(3, 48), "written": CACHE},
    ),
    "attention": (
        Attention(8, 1.0),
        {"q": float32(3, 48), "cache": CACHE, **TABLES},
        {"output": float32(3, 48)},
    ),
    "rope_attention": (
        RopeAttention(8, 1.0),
        {
            "q": float32(3, 48),
            "k": float32(3, 16),
            "v": float32(3, 16),
            "table": float32(64, 4, 2),
            **TABLES,
            "cache": CACHE,
        },
        {"output": float32(3, 48), "written": CACHE},
    ),
    "swiglu": (
        Swiglu(),
        {"gate": float32(3, 5), "up": float32(3, 5)},
        {"output": float32(3, 5)},
    ),
    "argmax": (Argmax(), {"x": float32(3, 5)}, {"output": int32(3)}),
    "top_k": (
        TopK(5),
        {"x": float32(3, 5)},
        {"values": float32(3, 5), "indices": int32(3, 5)},
    ),
}

# Op, operand, and a type that does not fit beside the others.
BAD = [
    ("embed", "ids", float32(3)),
    ("embed", "ids", int32(3, 1)),
    ("embed", "table", float32(10)),
    ("rms_norm", "x", int32(3, 24)),
    ("rms_norm", "x", float32(24)),
    ("rms_norm", "weight", float32(7)),
    ("rms_norm", "weight", Operand((8,), DType.F16)),
    ("rms_norm", "residual", float32(4, 24)),
    ("rms_norm", "residual", int32(3, 24)),
    ("linear", "x", float32(3, 32)),
    ("linear", "x", Operand((3, 64), DType.F16)),
    ("linear", "weight", Operand((64,), DType.F32, Role.WEIGHT)),
    ("linear", "bias", float32(64)),
    ("linear", "bias", Operand((5,), DType.F16)),
    ("linear", "gate", float32(5, 3)),
    ("linear", "residual", float32(3, 64)),
    ("gated_linear", "x", float32(3, 32)),
    ("gated_linear", "x", int32(3, 64)),
    ("gated_linear", "gate_weight", Operand((6, 64), Q4_0, Role.WEIGHT)),
    ("gated_linear", "up_weight", Operand((64,), DType.F32, Role.WEIGHT)),
    ("gated_linear", "up_weight", Operand((5, 32), Q4_0, Role.WEIGHT)),
    ("gated_linear", "gate_bias", float32(64)),
    ("gated_linear", "up_bias", Operand((5,), DType.F16)),
    ("gated_linear", "norm_weight", float32(5)),
    ("qkv_linear", "x", float32(3, 32)),
    ("qkv_linear", "q_weight", Operand((6, 32), Q4_0, Role.WEIGHT)),
    ("qkv_linear", "k_weight", Operand((3, 64), Q4_0, Role.WEIGHT)),
    ("qkv_linear", "v_weight", Operand((2, 32), Q8_0, Role.WEIGHT)),
    ("qkv_linear", "q_bias", float32(2)),
    ("qkv_linear", "k_bias", float32(6)),
    ("qkv_linear", "v_bias", int32(2)),
    ("qkv_linear", "norm_weight", Operand((64,), DType.F16)),
    ("rope_kv", "q", float32(4, 48)),
    ("rope_kv", "q", float32(3, 44)),
    ("rope_kv", "k", float32(3, 24)),
    ("rope_kv", "v", float32(3, 8)),
    ("rope_kv", "table", float32(64, 8, 2)),
    ("rope_kv", "table", float32(64, 4)),
    ("rope_kv", "table", Operand((64, 4, 2), DType.F16)),
    ("rope_kv", "cache", Operand((9, 2, 1, 16, 8), DType.F16, Role.KV_CACHE)),
    ("rope_kv", "cache", Operand((9, 2, 2, 16, 8), DType.BF16, Role.KV_CACHE)),
    *[
        ("rope_attention", name, type_)
        for name, type_ in (
            ("q", float32(3, 40)),
            ("k", float32(3, 24)),
            ("v", float32(3, 8)),
            ("table", float32(64, 8, 2)),
            ("cache", Operand((9, 2, 1, 16, 8), DType.F16, Role.KV_CACHE)),
        )
    ],
    ("attention", "q", float32(3, 40)),
    ("attention", "cache", Operand((9, 2, 2, 8, 8), DType.F16, Role.KV_CACHE)),
    ("attention", "cache", Operand((9, 1, 2, 16, 8), DType.F16, Role.KV_CACHE)),
    ("attention", "cache", Operand((9, 2, 2, 16), DType.F16, Role.KV_CACHE)),
    ("attention", "cache", Operand((9, 2, 2, 16, 8), DType.I32, Role.KV_CACHE)),
    *[
        (op, name, type_)
        for op in ("rope_kv", "attention", "rope_attention")
        for name, type_ in (
            ("query_start", int32(2)),
            ("query_start", float32(3)),
            ("kv_len", int32(3)),
            ("kv_len", float32(2)),
            ("kv_len", int32()),
            ("block_table", int32(3, 4)),
            ("block_table", int32(8)),
            ("block_table", float32(2, 4)),
        )
    ],
    ("swiglu", "up", float32(3, 6)),
    ("swiglu", "gate", int32(3, 5)),
    ("argmax", "x", float32(5)),
    ("argmax", "x", int32(3, 5)),
    ("top_k", "x", float32(3, 4)),
    ("top_k", "x", int32(3, 5)),
]


def test_every_op_is_here() -> None:
    assert list(GOOD) == [op.name for op in OPS]
    assert {name for name, _, _ in BAD} == GOOD.keys()


@pytest.mark.parametrize(("op", "inputs", "outputs"), GOOD.values(), ids=GOOD)
def test_good_operands(op: Op, inputs: Operands, outputs: Operands) -> None:
    op.check(inputs)
    assert op.infer(inputs) == outputs


@pytest.mark.parametrize(
    ("name", "operand", "wrong"), BAD, ids=[f"{op}-{name}-{type_}" for op, name, type_ in BAD]
)
def test_bad_operands(name: str, operand: str, wrong: Operand) -> None:
    op, inputs, _ = GOOD[name]
    with pytest.raises(PlanError, match=f"The op {name} needs ") as caught:
        op.infer({**inputs, operand: wrong})
    assert f"{operand} {wrong}" in str(caught.value)


@pytest.mark.parametrize("k", [0, -1, 6])
def test_k_out_of_range(k: int) -> None:
    with pytest.raises(PlanError, match=f"at least k = {k}"):
        TopK(k).infer({"x": float32(3, 5)})


def test_odd_heads_cannot_be_rotated() -> None:
    inputs = {**GOOD["rope_kv"][1], "q": float32(3, 14), "k": float32(3, 7), "v": float32(3, 7)}
    inputs |= {"table": float32(64, 3, 2), "cache": Operand((9, 2, 1, 16, 7), DType.F16)}
    with pytest.raises(PlanError, match="even D"):
        RopeKv(7).infer(inputs)


@pytest.mark.parametrize(("op", "inputs", "outputs"), GOOD.values(), ids=GOOD)
def test_missing_and_unknown_operands(op: Op, inputs: Operands, outputs: Operands) -> None:
    del outputs
    for rule in op.inputs:
        without = {name: type_ for name, type_ in inputs.items() if name != rule.name}
        if rule.optional:
            op.check(without)
            continue
        with pytest.raises(PlanError, match=f"The op {op.name} needs the input {rule.name}"):
            op.check(without)
    with pytest.raises(PlanError, match=f"The op {op.name} has no input mask"):
        op.check({**inputs, "mask": float32(1)})


@pytest.mark.parametrize(("op", "inputs", "outputs"), GOOD.values(), ids=GOOD)
def test_outputs_are_those_declared(op: Op, inputs: Operands, outputs: Operands) -> None:
    del inputs
    assert list(outputs) == [rule.name for rule in op.outputs]


@pytest.mark.parametrize(("op", "inputs", "outputs"), GOOD.values(), ids=GOOD)
def test_arguments_fit_a_dispatch(op: Op, inputs: Operands, outputs: Operands) -> None:
    updates = {rule.name: rule.updates for rule in op.outputs if rule.updates is not None}
    made = {name: type_ for name, type_ in outputs.items() if name not in updates}
    arguments = op.arguments({**inputs, **made})
    assert [a.operand for a in arguments] == [*inputs, *made]
    assert len(arguments) <= MAX_BINDINGS
    for argument in arguments:
        if argument.operand in updates.values():
            assert argument.access is Access.READ_WRITE
        else:
            wanted = Access.READ if argument.operand in inputs else Access.WRITE
            assert argument.access is wanted


def test_variants() -> None:
    def variant(name: str) -> str:
        op, inputs, _ = GOOD[name]
        return op.variant(inputs)

    assert variant("linear") == "linear[q4_0]"
    assert variant("gated_linear") == "gated_linear[q4_0+q8_0]"
    assert variant("qkv_linear") == "qkv_linear[q4_0+q8_0]"
    assert variant("embed") == "embed[q4_0]"
    assert variant("attention") == "attention[f16]"
    assert variant("rope_kv") == "rope_kv[f16]"
    assert variant("swiglu") == "swiglu"


def test_without_a_residual_there_is_no_sum() -> None:
    op, inputs, outputs = GOOD["rms_norm"]
    without = {name: type_ for name, type_ in inputs.items() if name != "residual"}
    assert op.infer(without) == {"output": outputs["output"]}


@pytest.mark.parametrize("op", [GatedLinear, QkvLinear])
def test_a_folded_norm_needs_weight_and_eps(op: type[GatedLinear] | type[QkvLinear]) -> None:
    _, inputs, outputs = GOOD[op.name]
    without = {name: type_ for name, type_ in inputs.items() if name != "norm_weight"}
    assert op().infer(without) == outputs
    for made, given in ((op(), inputs), (op(eps=1e-6), without)):
        with pytest.raises(PlanError, match="if there is an eps"):
            made.infer(given)
