"""Weights that are larger than a view: what they are cut into, on paper."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.hal.buffer import VIEW_ALIGNMENT, Role
from crossinfer.hal.kernel import Kernel, Lowering, Operand
from crossinfer.kernels.layout import row_bytes, weight_bytes
from crossinfer.kernels.lowering import Capabilities, lower
from crossinfer.kernels.shader import ShaderKernel

STORAGES: list[StorageType] = [DType.F32, DType.F16, DType.BF16, *BLOCK_FORMATS]


def make_kernel(shader: ShaderKernel) -> Kernel:
    return Kernel(shader.name, shader)


def linear(T: int, N: int, K: int, storage: StorageType, *optional: str) -> dict[str, Operand]:
    kinds = {"bias": float32(N), "gate": float32(T, N), "residual": float32(T, N)}
    return {
        "x": float32(T, K),
        "weight": Operand((N, K), storage, Role.WEIGHT),
        **{name: kinds[name] for name in optional},
        "output": float32(T, N),
    }


def views(lowering: Lowering, operand: str, size: int) -> list[tuple[int, int]]:
    """(start, end) of an operand of `size` bytes that each dispatch sees, if it does, in order."""
    found: list[tuple[int, int]] = []
    for run in lowering.dispatches:
        # One may be bound twice, as a stand-in for what an op does not have.
        seen = {
            (a.offset, size if a.size is None else a.offset + a.size)
            for a in run.arguments
            if a.operand == operand
        }
        assert len(seen) <= 1
        found += seen
    return found


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 80),
    st.integers(65, 3000),
    st.sampled_from([256, 512, 1024]),
    st.sampled_from(STORAGES),
    st.integers(64, 600),
)
def test_ranges_cover_a_weight_once_in_views_that_are_allowed(
    T: int, N: int, K: int, storage: StorageType, rows: int
) -> None:
    limit = rows * row_bytes(K, storage)
    operands = linear(T, N, K, storage, "bias", "residual")
    size = weight_bytes((N, K), storage)
    lowerings = lower(Linear(), operands, Capabilities(max_view_bytes=limit), make_kernel)
    too_large = [o for o in operands.values() if o.role is Role.PLAIN]
    if any(o.storage.bytes_for(o.shape) > limit for o in too_large):
        assert lowerings == () or size <= limit
        return
    assert lowerings
    for lowering in lowerings:
        found = views(lowering, "weight", size)
        assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
        assert found[-1][1] == size
        for start, end in found:
            assert start % VIEW_ALIGNMENT == 0
            assert end - start <= limit
        row = row_bytes(K, storage)
        for operand in ("bias", "residual", "output"):
            starts = [start for start, _ in views(lowering, operand, 0)]
            assert starts == [4 * (start // row) for start, _ in found]
            assert all(start % VIEW_ALIGNMENT == 0 for start in starts)


def test_what_fits_a_view_is_not_cut() -> None:
    operands = linear(1, 640, 256, DType.F16)
    size = weight_bytes((640, 256), DType.F16)
    (whole, *_) = lower(Linear(), operands, Capabilities(max_view_bytes=size), make_kernel)
    (cut, *_) = lower(Linear(), operands, Capabilities(max_view_bytes=size - 1), make_kernel)
    assert (len(whole.dispatches), len(cut.dispatches)) == (1, 2)


def test_embed_is_cut() -> None:
    operands = {
        "ids": Operand((3,), DType.I32),
        "table": Operand((1000, 256), DType.F16, Role.WEIGHT),
        "output": float32(3, 256),
    }
    capabilities = Capabilities(max_view_bytes=300 * 512)
    (lowering,) = lower(Embed(), operands, capabilities, make_kernel)
    starts = [0, 256 * 512, 512 * 512, 768 * 512]
    assert [start for start, _ in views(lowering, "table", 512000)] == starts
    assert [start for start, _ in views(lowering, "output", 1)] == [0] * 4


@pytest.mark.parametrize("large", ["x", "output", "row"])
def test_what_cannot_be_cut_has_no_kernel(large: str) -> None:
    T, N, K = {"x": (999, 70, 256), "output": (999, 640, 32), "row": (1, 640, 1024)}[large]
    limit = {"x": 512 * 1024, "output": 512 * 1024, "row": 63 * 2048}[large]
    operands = linear(T, N, K, DType.F16)
    assert not lower(Linear(), operands, Capabilities(max_view_bytes=limit), make_kernel)


def test_other_ops_have_no_kernel_for_what_they_cannot_see() -> None:
    few = Capabilities(max_view_bytes=1 << 12)
    norm = {"x": float32(99, 64), "weight": float32(64), "output": float32(99, 64)}
    assert not lower(RmsNorm(1e-5), norm, few, make_kernel)
    weight = Operand((640, 256), DType.F16, Role.WEIGHT)
    gated = {"x": float32(1, 256), "gate_weight": weight, "up_weight": weight}
    assert not lower(GatedLinear(), {**gated, "output": float32(1, 640)}, few, make_kernel)
    dense = {"ids": Operand((3,), DType.I32), "table": float32(99, 64), "output": float32(3, 64)}
    assert not lower(Embed(), dense, few, make_kernel)
