"""The meanings of the ops that work row by row, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crossinfer.core.dtypes import Array
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_embed_takes_rows_and_gives_nan_for_unknown_ids() -> None:
    table = np.arange(12.0).reshape(4, 3)
    ids = np.array([3, -1, 0, 4, 3, 2**31 - 1], dtype=np.int32)
    output = Embed().compute({"ids": ids, "table": table})["output"]
    nan_row = [NAN] * 3
    np.testing.assert_array_equal(
        output, [[9, 10, 11], nan_row, [0, 1, 2], nan_row, [9, 10, 11], nan_row]
    )
    np.testing.assert_array_equal(table, np.arange(12.0).reshape(4, 3))


def loop_norm(x: Array, weight: Array, eps: float) -> Array:
    result, size = np.empty_like(x), len(weight)
    for t in range(len(x)):
        for start in range(0, x.shape[1], size):
            run = x[t, start : start + size]
            root = math.sqrt(sum(float(value) ** 2 for value in run) / size + eps)
            for i in range(size):
                result[t, start + i] = run[i] / root * weight[i]
    return result


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_rms_norm(rng: np.random.Generator, runs: int, eps: float) -> None:
    x, weight = rng.normal(size=(4, runs * 5)), rng.normal(size=5)
    residual = rng.normal(size=x.shape)
    op = RmsNorm(eps)
    plain = op.compute({"x": x, "weight": weight})
    assert plain.keys() == {"output"}
    np.testing.assert_allclose(plain["output"], loop_norm(x, weight, eps), rtol=1e-13)
    added = op.compute({"x": x, "weight": weight, "residual": residual})
    np.testing.assert_array_equal(added["sum"], x + residual)
    expected = loop_norm(x + residual, weight, eps)
    np.testing.assert_allclose(added["output"], expected, rtol=1e-13)


def test_rms_norm_of_zeros_is_zero() -> None:
    output = RmsNorm(1e-6).compute({"x": np.zeros((2, 4)), "weight": np.ones(4)})["output"]
    np.testing.assert_array_equal(output, np.zeros((2, 4)))


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize("optional", ["", "b", "g", "r", "br", "bg", "bgr"])
def test_linear(rng: np.random.Generator, optional: str) -> None:
    T, N, K = 3, 4, 6
    inputs = {
        "x": rng.normal(size=(T, K)),
        "weight": rng.normal(size=(N, K)),
        "bias": rng.normal(size=N),
        "gate": rng.normal(size=(T, N)),
        "residual": rng.normal(size=(T, N)),
    }
    given = {k: v for k, v in inputs.items() if k in ("x", "weight") or k[0] in optional}
    output = Linear().compute(given)["output"]
    for t in range(T):
        for n in range(N):
            y = sum(inputs["x"][t, i] * inputs["weight"][n, i] for i in range(K))
            y += inputs["bias"][n] if "b" in optional else 0
            y *= silu(inputs["gate"][t, n]) if "g" in optional else 1
            y += inputs["residual"][t, n] if "r" in optional else 0
            assert output[t, n] == pytest.approx(y, rel=1e-12)


def test_linear_of_many_rows_of_weights(rng: np.random.Generator) -> None:
    """More than are converted to float64 at once."""
    x, weight = rng.normal(size=(2, 3)), rng.normal(size=(70_001, 3)).astype(np.float32)
    output = Linear().compute({"x": x, "weight": weight})["output"]
    np.testing.assert_allclose(output, x @ weight.T.astype(np.float64), rtol=1e-12, atol=1e-12)


def test_linear_computes_in_float64() -> None:
    x, weight = np.array([[1e8, 1, -1e8]], np.float32), np.array([[1, 1, 1]], np.float32)
    assert Linear().compute({"x": x, "weight": weight})["output"] == 1


def loop_linear(x: Array, weight: Array, bias: Array | None) -> Array:
    y = np.zeros((len(x), len(weight)))
    for t in range(len(x)):
        for n in range(len(weight)):
            y[t, n] = sum(x[t, i] * weight[n, i] for i in range(x.shape[1]))
            y[t, n] += bias[n] if bias is not None else 0
    return y


@pytest.mark.parametrize("eps", [None, 0.25])
@pytest.mark.parametrize("biased", ["", "gate", "up", "gate up"])
def test_gated_linear(rng: np.random.Generator, biased: str, eps: float | None) -> None:
    T, F, K = 3, 4, 6
    inputs = {"x": rng.normal(size=(T, K))}
    for name in ("gate", "up"):
        inputs[f"{name}_weight"] = rng.normal(size=(F, K))
        if name in biased:
            inputs[f"{name}_bias"] = rng.normal(size=F)
    x = inputs["x"]
    if eps is not None:
        inputs["norm_weight"] = rng.normal(size=K)
        x = loop_norm(x, inputs["norm_weight"], eps)
    output = GatedLinear(eps).compute(inputs)["output"]
    gate = loop_linear(x, inputs["gate_weight"], inputs.get("gate_bias"))
    up = loop_linear(x, inputs["up_weight"], inputs.get("up_bias"))
    expected = np.vectorize(silu)(gate) * up
    np.testing.assert_allclose(output, expected, rtol=1e-12)


@pytest.mark.parametrize("eps", [None, 0.25])
@pytest.mark.parametrize("biased", ["", "q", "kv", "qkv"])
def test_qkv_linear(rng: np.random.Generator, biased: str, eps: float | None) -> None:
    T, K = 3, 6
    inputs = {"x": rng.normal(size=(T, K))}
    for name, size in zip("qkv", (6, 2, 2), strict=True):
        inputs[f"{name}_weight"] = rng.normal(size=(size, K))
        if name in biased:
            inputs[f"{name}_bias"] = rng.normal(size=size)
    x = inputs["x"]
    if eps is not None:
        inputs["norm_weight"] = rng.normal(size=K)
        x = loop_norm(x, inputs["norm_weight"], eps)
    outputs = QkvLinear(eps).compute(inputs)
    for name in "qkv":
        expected = loop_linear(x, inputs[f"{name}_weight"], inputs.get(f"{name}_bias"))
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-12)


def test_swiglu() -> None:
    gate = np.array([[-3.0, -0.5, 0.0, 0.5, 3.0]])
    up = np.array([[2.0, -1.0, 5.0, 7.0, 0.0]])
    expected = [[silu(g) * u for g, u in zip(gate[0], up[0], strict=True)]]
    output = Swiglu().compute({"gate": gate, "up": up})["output"]
    np.testing.assert_allclose(output, expected, rtol=1e-15)


def test_swiglu_extremes() -> None:
    gate = np.array([[-1e38, -1e4, -750, 750, 1e4, 1e38]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        output = Swiglu().compute({"gate": gate, "up": np.ones_like(gate)})["output"]
    np.testing.assert_allclose(output[0, 3:], gate[0, 3:])
    np.testing.assert_allclose(output[0, :3], 0, atol=1e-300)
    nan = Swiglu().compute(
        {"gate": np.array([[NAN]], np.float32), "up": np.array([[0]], np.float32)}
    )["output"]
    assert np.isnan(nan).all()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 3, 2], 1),
        ([3, 1, 3], 0),
        ([-INF, -5, -INF], 1),
        ([-2, -INF, -1], 2),
        ([NAN, 1, 2], -1),
        ([1, 2, NAN], -1),
        ([-INF, -INF, -INF], -1),
        ([1, INF, 2], -1),
        ([NAN, INF, -INF], -1),
    ],
)
def test_argmax(row: list[float], expected: int) -> None:
    x = np.array([row, [0, 0, 1]], dtype=np.float32)
    assert Argmax().compute({"x": x})["output"].tolist() == [expected, 2]


@pytest.mark.parametrize(
    ("row", "indices"),
    [
        ([1, 3, 2, 0], [1, 2, 0]),
        ([2, 2, 2, 2], [0, 1, 2]),
        ([1, 2, 1, 2], [1, 3, 0]),
        ([-INF, 5, -INF, -INF], [1, 0, 2]),
        ([-INF] * 4, [0, 1, 2]),
        ([-1, INF, -2, INF], [1, 3, 0]),
    ],
)
def test_top_k(row: list[float], indices: list[int]) -> None:
    x = np.array([row, [9, 8, 7, 6]], dtype=np.float32)
    made = TopK(3).compute({"x": x})
    assert made["indices"].tolist() == [indices, [0, 1, 2]]
    assert made["values"].tolist() == [[row[i] for i in indices], [9, 8, 7]]
