"""float16 and bfloat16 on every instruction set, with and without instructions for them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.jit.kernel_calls import call_kernel

from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target, host_targets
from crossinfer.jit.types import Type, bf16, f16, f32

TARGETS = pytest.mark.parametrize("target", host_targets(), ids=lambda target: target.name)


def convert(target: Target, source: Type, result: Type) -> str:
    """16 elements a workgroup."""
    k = KernelBuilder("kernel", target)
    x, y = k.views(source, result)
    with k.workgroups() as group:
        y.store(group * 16, x.vector(group * 16, 16).to(result))
    return k.finish()


@TARGETS
def test_every_half_widens_exactly(target: Target) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    result = np.empty(bits.size, np.float32)
    call_kernel(convert(target, f16, f32), target, [bits, result], workgroups=bits.size // 16)
    expected = bits.view(np.float16).astype(np.float32)
    assert np.array_equal(result, expected, equal_nan=True)
    assert np.array_equal(np.signbit(result), np.signbit(expected))


@TARGETS
def test_floats_narrow_to_the_nearest_even_half(target: Target) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = np.sort(halves[np.isfinite(halves)])
    middles = (halves[1:] + halves[:-1]) / 2
    rng = np.random.default_rng()
    any_bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    special = np.array([np.inf, -np.inf, np.nan, 65519.99, 65520, 1e38], np.float32)
    around = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate(
        [halves, middles, *around, any_bits, special], dtype=np.float32, casting="same_kind"
    )
    x = np.resize(x, -(-x.size // 16) * 16)
    result = np.empty(x.size, np.uint16)
    call_kernel(convert(target, f32, f16), target, [x, result], workgroups=x.size // 16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(np.float16)
    assert np.array_equal(result.view(np.float16), expected, equal_nan=True)


@TARGETS
def test_every_bfloat_widens_exactly(target: Target) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    result = np.empty(bits.size, np.uint32)
    call_kernel(convert(target, bf16, f32), target, [bits, result], workgroups=bits.size // 16)
    assert np.array_equal(result, bits.astype(np.uint32) << 16)
