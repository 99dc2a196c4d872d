"""How results are compared."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.core.dtypes import Array
from crossinfer.graph.tolerance import Tolerance, row_error

INF, NAN = float("inf"), float("nan")


def rows(*values: list[float]) -> Array:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("result", "expected", "error"),
    [
        (rows([1, 2]), rows([1, 2]), 0),
        (rows([1, 2.5]), rows([1, 2]), 0.25),
        (rows([1, 2.5], [0, 30]), rows([1, 2], [3, 30]), 0.25),
        (rows([1, -2.5]), rows([1, -2]), 0.25),
        (rows([0, 0]), rows([0, 0]), 0),
        (rows([0, 1e-30]), rows([0, 0]), INF),
        (rows([0, 0]), rows([0, 1e-30]), 1),
        (rows([1, NAN]), rows([1, 2]), INF),
        (rows([1, 2]), rows([1, NAN]), INF),
        (rows([NAN, 2]), rows([NAN, 2]), 0),
        (rows([NAN, 2]), rows([2, NAN]), INF),
        (rows([NAN, 2.5]), rows([NAN, 2]), 0.25),
        (rows([1, INF]), rows([1, INF]), 0),
        (rows([1.5, INF]), rows([1, INF]), 0.5),
        (rows([1, INF]), rows([1, -INF]), INF),
        (rows([1, INF]), rows([1, 3e38]), INF),
        (rows([1, 3e38]), rows([1, INF]), INF),
        (rows([INF, INF]), rows([INF, INF]), 0),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0),
        (np.zeros((3, 0)), np.zeros((3, 0)), 0),
        (np.array(5.0), np.array(4.0), 0.25),
    ],
)
def test_row_error(result: Array, expected: Array, error: float) -> None:
    assert row_error(result, expected) == error


def test_rows_are_the_last_dimension() -> None:
    expected = np.array([[[1.0], [100.0]], [[10.0], [1000.0]]])
    result = expected.copy()
    result[1, 0, 0] = 11
    assert row_error(result, expected) == pytest.approx(0.1)


def test_integers_and_low_precision_are_compared_exactly() -> None:
    assert row_error(np.array([2**31 - 1], np.int32), np.array([2**31 - 1], np.int64)) == 0
    assert row_error(np.array([2**24 + 1], np.int32), np.array([2**24], np.int32)) > 0
    assert row_error(np.array([60000], np.float16), np.array([60001], np.float32)) < 1e-3


def test_garbage_is_an_error_and_no_crash() -> None:
    signalling = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
    assert row_error(signalling, np.array([1], np.float32)) == INF
    assert row_error(np.array([3.4e38], np.float32), np.array([1e-38], np.float32)) > 1e30


@pytest.mark.parametrize("shape", [(3,), (2, 3, 1), (3, 2)])
def test_shapes_must_be_equal(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot be compared"):
        row_error(np.zeros(shape), np.zeros((2, 3)))


def test_classes_grow_looser() -> None:
    values = [tolerance.value for tolerance in Tolerance]
    assert values == sorted(values)
    assert Tolerance.EXACT.value == 0
