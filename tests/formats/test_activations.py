"""Activations rounded to integers: the bound that the documentation gives."""

from __future__ import annotations

import numpy as np
import pytest

from crossinfer.formats.activations import SMALLEST, ActivationBlocks


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e30])
def test_each_element_moves_by_half_a_step_at_most(group: int, scale: float) -> None:
    x = np.random.default_rng(0).standard_normal((5, 300), dtype=np.float32) * np.float32(scale)
    blocks = ActivationBlocks(group)
    codes, scales = blocks.quantize(x)
    steps = np.repeat(scales.astype(np.float64), group, axis=1)[:, : x.shape[1]]
    rounded = blocks.round(x)
    assert codes.dtype == np.int8
    assert np.all(np.abs(codes.astype(int)) <= 127)
    np.testing.assert_array_equal(rounded, codes * steps)
    assert np.all(np.abs(x - rounded) <= steps * 0.5 * (1 + 1e-4))


def test_the_largest_element_is_kept() -> None:
    x = np.array([[0.1, -3.0, 2.9, 0.0]], dtype=np.float32)
    codes, scales = ActivationBlocks(32).quantize(x)
    assert codes.tolist() == [[4, -127, 123, 0]]
    assert scales == pytest.approx(3 / 127)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, SMALLEST / 2])
def test_what_is_too_small_is_zero(value: float) -> None:
    codes, scales = ActivationBlocks(4).quantize(np.full((1, 4), value, dtype=np.float32))
    assert not np.any(codes)
    assert not np.any(scales)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_the_scale(value: float) -> None:
    x = np.ones((1, 8), dtype=np.float32)
    x[0, 5] = value
    _, scales = ActivationBlocks(4).quantize(x)
    assert scales[0, 0] == pytest.approx(1 / 127)
    assert not np.isfinite(scales[0, 1])
