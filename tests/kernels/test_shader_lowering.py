"""What ops become: shaders of the catalog, arguments in register order, grids within limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import Q4_K, Q8_0, StorageType
from crossinfer.graph.op import Op, Operands, float32
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.kernel import Kernel, LoweredDispatch, Operand
from crossinfer.kernels.catalog import all_shaders
from crossinfer.kernels.lowering import Capabilities, lower
from crossinfer.kernels.shader import ShaderKernel
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases, cases_of

CATALOG = frozenset(all_shaders())
SIZES = (1, 16, 528, 4096)


def make_kernel(shader: ShaderKernel) -> Kernel:
    return Kernel(shader.name, shader)


def check(op: Op, inputs: Operands, fill_groups: int) -> None:
    """Every way to run an op obeys the rules of the package."""
    operands = {**inputs, **_outputs(op, inputs)}
    capabilities = Capabilities(fill_groups, (1 << 32) - 1, integer_dots=True)
    lowerings = lower(op, operands, capabilities, make_kernel)
    assert lowerings
    for lowering in lowerings:
        written = set()
        for dispatch in lowering.dispatches:
            _check_dispatch(dispatch, {*operands, *lowering.scratch})
            written |= {a.operand for a in dispatch.arguments if Access.WRITE in a.access}
        assert written >= _outputs(op, inputs).keys()
        assert all(size > 0 for size in lowering.scratch.values())


def _outputs(op: Op, inputs: Operands) -> dict[str, Operand]:
    in_place = {rule.name for rule in op.outputs if rule.updates}
    return {name: kind for name, kind in op.infer(inputs).items() if name not in in_place}


def _check_dispatch(dispatch: LoweredDispatch, names: set[str]) -> None:
    shader = dispatch.kernel.handle
    assert isinstance(shader, ShaderKernel)
    assert shader in CATALOG  # a wheel carries it
    assert {argument.operand for argument in dispatch.arguments} <= names
    is_written = [Access.WRITE in argument.access for argument in dispatch.arguments]
    assert is_written == [False] * shader.reads + [True] * shader.writes
    assert len(dispatch.constants) == shader.constant_bytes
    assert all(1 <= size <= 65535 for size in dispatch.grid)


@pytest.mark.parametrize("fill_groups", SIZES)
def test_all_cases(fill_groups: int) -> None:
    for case in all_cases():
        if not _stays_apart(case):
            check(case.op, case.inputs, fill_groups)


def _stays_apart(case: Case) -> bool:
    """Whether the plan had better not join these ops."""
    if isinstance(case.op, GatedLinear | QkvLinear):
        return case.inputs["x"].shape[0] > 16
    return isinstance(case.op, RopeAttention) and case.inputs["q"].shape[0] > 8


@pytest.mark.parametrize("op", ["gated_linear", "qkv_linear", "rope_attention"])
def test_ops_on_many_rows_are_not_joined(op: str) -> None:
    cases = [case for case in cases_of(op) if _stays_apart(case)]
    assert cases
    for case in cases:
        assert not lower(case.op, case.operands(), Capabilities(), make_kernel)


@pytest.mark.parametrize("fill_groups", SIZES)
@pytest.mark.parametrize("storage", [DType.F16, DType.F32, Q8_0, Q4_K], ids=lambda s: s.label)
def test_matrices_of_models(storage: StorageType, fill_groups: int) -> None:
    for tokens, (N, K) in itertools.product(
        (1, 3, 8, 9, 512, 4096),
        ((256, 2048), (18944, 3584), (3584, 18944), (152064, 3584), (256, 256)),
    ):
        weight = Operand((N, K - K % storage.block_elements), storage, Role.WEIGHT)
        check(Linear(), {"x": float32(tokens, weight.shape[1]), "weight": weight}, fill_groups)


@pytest.mark.parametrize("fill_groups", SIZES)
def test_long_rows(fill_groups: int) -> None:
    x = float32(64, 152064)
    for op in (Argmax(), TopK(1), TopK(512)):
        check(op, {"x": x}, fill_groups)
    wide = float32(8192, 18944)
    check(Swiglu(), {"gate": wide, "up": wide}, fill_groups)
    check(RmsNorm(1e-6), {"x": float32(8192, 28 * 128), "weight": float32(128)}, fill_groups)
    table = Operand((152064, 3584), DType.F16, Role.WEIGHT)
    check(Embed(), {"ids": Operand((8192,), DType.I32), "table": table}, fill_groups)


@pytest.mark.parametrize("fill_groups", SIZES)
@pytest.mark.parametrize("heads", [(32, 32, 64), (28, 4, 128), (16, 1, 256)], ids=str)
def test_attention(heads: tuple[int, int, int], fill_groups: int) -> None:
    for rows, sequences, blocks in ((1, 1, 1), (1, 1, 8192), (64, 64, 2048), (2048, 4, 512)):
        inputs = attention_inputs(rows, sequences, blocks, heads)
        check(Attention(heads[2], 0.1), inputs, fill_groups)
        check(Attention(heads[2], 0.1, window=100), inputs, fill_groups)


def attention_inputs(
    rows: int, sequences: int, blocks: int, heads: tuple[int, int, int]
) -> Mapping[str, Operand]:
    query_heads, kv_heads, D = heads
    return {
        "q": float32(rows, query_heads * D),
        "cache": Operand((64, 2, kv_heads, 16, D), DType.F16, Role.KV_CACHE),
        "query_start": Operand((sequences + 1,), DType.I32),
        "kv_len": Operand((sequences,), DType.I32),
        "block_table": Operand((sequences, blocks), DType.I32),
    }


@pytest.mark.parametrize("head_dim", [6, 258, 512])
def test_heads_that_no_kernel_takes_are_left_to_others(head_dim: int) -> None:
    inputs = attention_inputs(1, 1, 4, (2, 1, head_dim))
    op = Attention(head_dim, 0.1)
    operands = {**inputs, **op.infer(inputs)}
    assert not lower(op, operands, Capabilities(), make_kernel)


def test_a_k_that_no_kernel_takes_is_left_to_others() -> None:
    op, x = TopK(513), float32(1, 2000)
    assert not lower(op, {"x": x, **op.infer({"x": x})}, Capabilities(), make_kernel)


def test_few_rows_are_a_matrix_vector_product_and_many_are_not() -> None:
    weight = Operand((512, 512), DType.F16, Role.WEIGHT)
    first = [
        lower(Linear(), _linear(tokens, weight), Capabilities(), make_kernel)[0].kernel_names[0]
        for tokens in (1, 8, 16, 17, 64)
    ]
    assert [name.split("[")[0] for name in first] == ["linear_vec"] * 3 + ["linear_mat"] * 2


def _linear(tokens: int, weight: Operand) -> Operands:
    inputs = {"x": float32(tokens, weight.shape[1]), "weight": weight}
    return {**inputs, **Linear().infer(inputs)}


def test_large_devices_get_more_groups() -> None:
    operands = _linear(1, Operand((512, 4096), Q8_0, Role.WEIGHT))
    grids = [
        lower(Linear(), operands, Capabilities(size), make_kernel)[0].dispatches[0].grid
        for size in SIZES
    ]
    groups = [math.prod(grid) for grid in grids]
    assert groups == sorted(groups)
    assert groups[0] < groups[-1]
