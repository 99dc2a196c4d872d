"""Rotary tables: the plain case by its formula, scalings at their ends, bad kinds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import FormatError
from crossinfer.models.config import ModelConfig, RopeScaling
from crossinfer.models.rope import rope_table

CONFIG = ModelConfig(
    architecture="llama",
    hidden=64,
    layers=1,
    heads=2,
    kv_heads=1,
    head_dim=32,
    feed_forward=64,
    vocabulary=10,
    context=128,
    norm_eps=1e-5,
    rope_base=10000.0,
)


def angles(config: ModelConfig, position: int = 1, factors: Array | None = None) -> Array:
    table = rope_table(config, position + 1, factors)[position].astype(np.float64)
    turned: Array = np.arctan2(table[:, 1], table[:, 0])
    return turned


def scaled(kind: str, **fields: float) -> ModelConfig:
    scaling = RopeScaling(kind=kind, factor=4.0, original_context=64, **fields)
    return dataclasses.replace(CONFIG, rope_scaling=scaling)


def test_plain_table() -> None:
    table = rope_table(CONFIG, 50)
    assert table.shape == (50, 16, 2)
    assert table.dtype == np.float32
    for position in (0, 1, 49):
        for i in (0, 7, 15):
            angle = position * 10000.0 ** (-2 * i / 32)
            expected = [np.cos(angle), np.sin(angle)]
            np.testing.assert_allclose(table[position, i], expected, rtol=0, atol=1e-7)


def test_linear_divides_every_frequency() -> None:
    np.testing.assert_allclose(angles(scaled("linear")), angles(CONFIG) / 4, rtol=1e-5)


def test_llama3_keeps_short_and_stretches_long_wavelengths() -> None:
    ratio = angles(scaled("llama3")) / angles(CONFIG)
    wavelengths = 2 * np.pi / angles(CONFIG)
    np.testing.assert_allclose(ratio[wavelengths < 64 / 4], 1.0, rtol=1e-5)
    np.testing.assert_allclose(ratio[wavelengths > 64 / 1], 0.25, rtol=1e-4)
    assert np.all(np.diff(ratio) <= 1e-4)


def test_yarn_stretches_slow_frequencies_and_scales_the_table() -> None:
    table = rope_table(scaled("yarn"), 2)
    magnitude = 0.1 * np.log(4.0) + 1
    np.testing.assert_allclose(np.hypot(table[1, :, 0], table[1, :, 1]), magnitude, rtol=1e-6)
    ratio = angles(scaled("yarn")) / angles(CONFIG)
    assert ratio[0] == pytest.approx(1.0, rel=1e-5)
    assert ratio[-1] == pytest.approx(0.25, rel=1e-4)


def test_yarn_takes_an_attention_factor() -> None:
    table = rope_table(scaled("yarn", attention_factor=2.0), 1)
    np.testing.assert_allclose(table[0, :, 0], 2.0)


def test_factors_divide_frequencies() -> None:
    factors = np.linspace(1, 8, 16, dtype=np.float32)
    np.testing.assert_allclose(angles(CONFIG, 1, factors), angles(CONFIG) / factors, rtol=1e-4)


def test_unknown_scaling_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="'dynamic' is not supported"):
        rope_table(scaled("dynamic"), 1)


@pytest.mark.parametrize("positions", [1, 64, 65, 5000])
def test_all_positions_are_cosine_and_sine(positions: int) -> None:
    frequencies = CONFIG.rope_base ** (-2.0 * np.arange(CONFIG.head_dim // 2) / CONFIG.head_dim)
    turned = np.arange(positions)[:, None] * frequencies
    expected = np.stack([np.cos(turned), np.sin(turned)], axis=-1)
    table = rope_table(CONFIG, positions)
    assert table.dtype == np.float32
    assert table.shape == expected.shape
    assert np.abs(table - expected).max() < 3.1e-8  # half a unit in float32's last place at 1
