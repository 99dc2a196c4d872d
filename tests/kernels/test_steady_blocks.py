"""The rounding of integer dot products: its bound, and that no device's division changes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.formats.activations import SMALLEST
from crossinfer.kernels.activations import ROUNDING, inverse_scales

_GROUP = ROUNDING.group_elements


@given(st.integers(0, 2**32 - 1), st.integers(-90, 120))
def test_no_value_moves_by_more_than_half_a_step(seed: int, exponent: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, 5 * _GROUP + 3), np.float32)
    x = np.ldexp(x, exponent)
    codes, scales = ROUNDING.quantize(x)
    assert np.abs(codes.astype(int)).max() <= 127
    steps = np.repeat(scales.astype(np.float64), _GROUP, axis=1)[:, : x.shape[1]]
    assert (np.abs(ROUNDING.round(x) - x) <= 0.5001 * steps).all()
    # At most 1% coarser than 127 steps of the largest value, which is what the bound is worth.
    padded = np.pad(np.abs(x), ((0, 0), (0, -x.shape[1] % _GROUP)))
    largest = padded.reshape(2, -1, _GROUP).max(axis=-1)
    assert (scales <= 1.01 * largest / 127).all()


@pytest.mark.parametrize("exponent", [-99, -1, 0, 7, 125])
def test_a_division_that_is_wrong_by_100_units_gives_the_same_scale(exponent: int) -> None:
    magnitudes = np.ldexp(1 + np.arange(256, dtype=np.float32) / 256, exponent).astype(np.float32)
    exact = inverse_scales(magnitudes)
    quotients = (np.float32(126.5) / magnitudes).view(np.uint32).astype(np.int64)
    for units in range(-100, 101):
        moved = (quotients + units).astype(np.uint32)
        rounded = ((moved + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        assert (rounded == exact).all()
    # Bits of a magnitude behind the first nine do not count.
    assert (inverse_scales(np.nextafter(magnitudes, np.float32(np.inf))) == exact).all()


def test_groups_without_a_usable_magnitude() -> None:
    x = np.ones((1, 4 * _GROUP), np.float32)
    x[0, 0] = np.nan
    x[0, _GROUP] = -np.inf
    x[0, 2 * _GROUP : 3 * _GROUP] = 0.9 * SMALLEST
    codes, scales = ROUNDING.quantize(x)
    assert not np.isfinite(scales[0, :2]).any()
    assert scales[0, 2] == 0
    assert (codes[0, : 3 * _GROUP] == 0).all()
    assert (codes[0, 3 * _GROUP :] == codes[0, -1]).all()
    assert np.allclose(ROUNDING.round(x)[0, 3 * _GROUP :], 1, rtol=1 / 127)
