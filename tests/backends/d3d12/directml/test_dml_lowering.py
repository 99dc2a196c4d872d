"""linear by DirectML: what it takes, and that the operators together mean what linear means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.d3d12.directml.dml_setup import Setup
from tests.backends.d3d12.directml.fake_directml import Needs
from tests.backends.d3d12.directml.layouts import constant

from crossinfer.backends.d3d12.directml.lowering import lower_by_directml
from crossinfer.backends.d3d12.directml.operator import DmlOperator
from crossinfer.backends.d3d12.directml.tensors import Tensor
from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Lowering, Operand
from crossinfer.kernels.packing import pack_weight

NUMPY = {DType.F32: np.float32, DType.F16: np.float16}
# By which a result may be off, as a part of the sum of all magnitudes. In f16, x and the product
# are rounded once each, to half a unit of 2⁻¹⁰; below 2⁻¹⁴ that unit stays, hence the last bit.
ROUNDING = {DType.F32: 2.0**-21, DType.F16: 2.0**-9}


def linear_operands(
    T: int, N: int, K: int, storage: DType = DType.F32, follow: tuple[str, ...] = ()
) -> dict[str, Operand]:
    rest = {"bias": float32(N), "residual": float32(T, N), "gate": float32(T, N)}
    return {
        "x": float32(T, K),
        "weight": Operand((N, K), storage, Role.WEIGHT),
        **{name: rest[name] for name in follow},
        "output": float32(T, N),
    }


def lowered(setup: Setup, operands: dict[str, Operand]) -> Lowering:
    (lowering,) = lower_by_directml(setup.session, Linear(), operands)
    return lowering


@pytest.mark.parametrize("storage", NUMPY)
@pytest.mark.parametrize("follow", [(), ("bias",), ("residual",), ("bias", "residual")])
@settings(max_examples=25, deadline=None)
@given(T=st.integers(1, 7), N=st.integers(1, 9), K=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_operators_mean_linear(
    storage: DType, follow: tuple[str, ...], T: int, N: int, K: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    operands = linear_operands(T, N, K, storage, follow)
    inputs: dict[str, Array] = {
        name: rng.standard_normal(o.shape).astype(NUMPY[storage] if name == "weight" else "f4")
        for name, o in operands.items()
        if name != "output"
    }
    memory = {name: values.tobytes() for name, values in inputs.items()}
    memory["weight"] = b"".join(bytes(p) for p in pack_weight(inputs["weight"], (N, K), storage))
    setup = Setup()
    run(lowered(setup, operands), memory)
    assert setup.world.complaints == []
    result = np.frombuffer(memory["output"], "f4").reshape(T, N)
    expected = Linear().compute(inputs)["output"]
    sizes = Linear().compute({name: np.abs(values) for name, values in inputs.items()})["output"]
    assert np.all(np.abs(result - expected) <= ROUNDING[storage] * sizes)


def run(lowering: Lowering, memory: dict[str, bytes]) -> None:
    """Compute the operators' meanings over bytes, by their tensors' descriptions."""
    for dispatch in lowering.dispatches:
        operator = dispatch.kernel.handle
        assert isinstance(operator, DmlOperator)
        description = operator.description
        names = [argument.operand for argument in dispatch.arguments]
        assert names.pop().startswith("directml temporary")  # the fake wants some for each
        tensors = [tensor for tensor in description.inputs if tensor is not None]
        inputs = [seen(memory[n], t) for n, t in zip(names[:-1], tensors, strict=True)]
        output = description.output
        values = description.compute(inputs).astype(NUMPY[output.dtype])
        assert output.strides == (0, 0, output.columns, 1)
        memory[names[-1]] = values.tobytes().ljust(output.size_in_bytes, b"\0")


def seen(raw: bytes, tensor: Tensor) -> Array:
    """The elements of a tensor; those that a view does not hold are an error."""
    flat = np.frombuffer(raw[: len(raw) // 4 * 4], NUMPY[tensor.dtype])
    rows = [
        flat[row * tensor.row_stride : row * tensor.row_stride + tensor.columns]
        for row in range(tensor.rows)
    ]
    return np.stack(rows)


def test_names_and_scratch() -> None:
    setup = Setup(needs=lambda seen: Needs(4, 640 if seen.kind == constant("OPERATOR_GEMM") else 0))
    plain = lowered(setup, linear_operands(5, 32, 64))
    assert plain.kernel_names == ("directml_gemm[f32]",)
    assert plain.scratch == {"directml temporary 0": 640}
    both = lowered(setup, linear_operands(5, 32, 64, DType.F32, ("bias", "residual")))
    assert both.kernel_names == ("directml_gemm[f32]", "directml_add[f32]")
    assert both.scratch == {"directml temporary 0": 640, "directml product": 4 * 5 * 32}
    half = lowered(setup, linear_operands(5, 32, 64, DType.F16))
    assert half.kernel_names == (
        "directml_cast[f16]",
        "directml_gemm[f16]",
        "directml_cast[f32]",
    )


def test_what_is_left_to_our_kernels() -> None:
    session = Setup().session
    quantized = linear_operands(5, 32, 64) | {"weight": Operand((32, 64), Q8_32, Role.WEIGHT)}
    bf16 = linear_operands(5, 32, 64) | {"weight": Operand((32, 64), DType.BF16, Role.WEIGHT)}
    dense = linear_operands(5, 32, 64) | {"weight": Operand((32, 64), DType.F32)}
    gated = linear_operands(5, 32, 64, DType.F32, ("gate",))
    huge = linear_operands(5, 1 << 17, 1 << 13)  # 4 GiB
    for operands in (quantized, bf16, dense, gated, huge):
        assert lower_by_directml(session, Linear(), operands) == ()
    swiglu = dict.fromkeys(("gate", "up", "output"), float32(5, 32))
    assert lower_by_directml(session, Swiglu(), swiglu) == ()


def test_what_the_device_or_the_driver_lacks() -> None:
    no_half = Setup(data_types=("FLOAT32",)).session
    assert lower_by_directml(no_half, Linear(), linear_operands(5, 32, 64, DType.F16)) == ()
    assert lower_by_directml(no_half, Linear(), linear_operands(5, 32, 64)) != ()
    no_gemm = Setup(refuses=lambda seen: seen.kind == constant("OPERATOR_GEMM")).session
    assert lower_by_directml(no_gemm, Linear(), linear_operands(5, 32, 64)) == ()
