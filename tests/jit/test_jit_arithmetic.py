"""Arithmetic of generated kernels on every instruction set of this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.jit.kernel_calls import call_kernel
from tests.jit.runnable_targets import runnable_targets

from crossinfer.core.dtypes import Array
from crossinfer.jit import arithmetic
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.dot import dot4, dot4_signed, prefers_signed
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i8, i32, u8
from crossinfer.jit.value import Value

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda target: target.name)


def mapped(target: Target, function: Callable[[Value], Value], x: Array) -> Array:
    """`function` of f32, 16 at a time."""
    k = KernelBuilder("kernel", target)
    source, result = k.views(f32, f32)
    with k.workgroups() as group:
        result.store(group * 16, function(source.vector(group * 16, 16)))
    x = np.resize(x.astype(np.float32), -(-x.size // 16) * 16)
    y = np.empty_like(x)
    call_kernel(k.finish(), target, [x, y], workgroups=x.size // 16)
    return y


@TARGETS
def test_exp_is_right_to_the_last_place(target: Target) -> None:
    x = np.linspace(-87, 88.7, 1 << 18).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    units = np.abs(mapped(target, arithmetic.exp, x) - expected) / np.spacing(
        expected.astype(np.float32)
    )
    assert units.max() < 1.5


@TARGETS
def test_exp2_of_negative_is_right_to_the_last_places(target: Target) -> None:
    x = -np.concatenate([np.linspace(0, 126, 1 << 18), [0.5, 1, 1.5, 125.5, 126]])
    x = x.astype(np.float32)
    made = mapped(target, arithmetic.exp2_of_negative, x)[: x.size]
    expected = np.exp2(x.astype(np.float64))
    units = np.abs(made - expected) / np.spacing(expected.astype(np.float32))
    assert units.max() < 2.5
    ends = np.array([0, -0.0, -126.01, -1000, -1e30, -np.inf, np.nan], np.float32)
    made = mapped(target, arithmetic.exp2_of_negative, ends)[: ends.size]
    assert np.array_equal(made, np.array([1, 1, 0, 0, 0, 0, np.nan], np.float32), equal_nan=True)


@TARGETS
def test_exp_of_numbers_at_the_ends(target: Target) -> None:
    x = np.array([0, -0.0, -np.inf, np.inf, np.nan, -1000, 1000, 89, -104.5, -1e30], np.float32)
    y = mapped(target, arithmetic.exp, x)[: x.size]
    expected = [1, 1, 0, np.inf, np.nan, 0, np.inf, np.inf, 0, 0]
    assert np.array_equal(y, np.array(expected, np.float32), equal_nan=True)
    tiny = np.linspace(-103, -87.5, 16).astype(np.float32)
    errors = np.abs(mapped(target, arithmetic.exp, tiny) - np.exp(tiny.astype(np.float64)))
    assert errors.max() <= np.finfo(np.float32).smallest_subnormal


@TARGETS
def test_sum_of_lanes_is_a_tree(target: Target) -> None:
    x = np.random.default_rng().standard_normal(16).astype(np.float32)
    y = mapped(target, lambda v: arithmetic.reduce_add(v).splat(16), x)
    while x.size > 1:
        x = x[: x.size // 2] + x[x.size // 2 :]
    assert np.all(y == x[0])


@TARGETS
@pytest.mark.parametrize("a_bits", [7, 8])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32])
def test_dot4_is_exact(target: Target, a_bits: int, lanes: int) -> None:
    k = KernelBuilder("kernel", target)
    a, b, start, result = k.views(u8, i8, i32, i32)
    with k.workgroups() as group:
        at = group * lanes
        bytes_a, bytes_b = (p.vector(at * 4, 4 * lanes) for p in (a, b))
        result.store(at, dot4(start.vector(at, lanes), bytes_a, bytes_b, a_bits))
    rng = np.random.default_rng()
    n = lanes * 64
    largest = (1 << a_bits) - 1
    codes = rng.integers(0, largest + 1, 4 * n).astype(np.uint8)
    values = rng.integers(-128, 128, 4 * n).astype(np.int8)
    # The corners in one product, where 16 bits would not do.
    codes[: 2 * n], values[:n], values[n : 2 * n] = largest, -128, 127
    acc = rng.integers(-1000, 1000, n).astype(np.int32)
    y = np.empty(n, np.int32)
    call_kernel(k.finish(), target, [codes, values, acc, y], workgroups=64)
    products = codes.astype(np.int32) * values.astype(np.int32)
    assert np.array_equal(y, acc + products.reshape(-1, 4).sum(axis=1))


@TARGETS
@pytest.mark.parametrize("registers", [1, 2])
def test_dot4_of_signed_bytes_is_exact(target: Target, registers: int) -> None:
    if not prefers_signed(target):
        pytest.skip(f"{target.name} multiplies bytes without a sign as fast")
    k, lanes = KernelBuilder("kernel", target), registers * target.lanes()
    a, b, start, result = k.views(i8, i8, i32, i32)
    with k.workgroups() as group:
        at = group * lanes
        bytes_a, bytes_b = (p.vector(at * 4, 4 * lanes) for p in (a, b))
        result.store(at, dot4_signed(start.vector(at, lanes), bytes_a, bytes_b))
    rng = np.random.default_rng()
    n = lanes * 64
    codes = rng.integers(-128, 128, 4 * n).astype(np.int8)
    values = rng.integers(-127, 128, 4 * n).astype(np.int8)
    codes[: 2 * n], values[:n], values[n : 2 * n] = -128, -127, 127
    codes[2 * n : 3 * n : 5] = 0
    acc = rng.integers(-1000, 1000, n).astype(np.int32)
    y = np.empty(n, np.int32)
    call_kernel(k.finish(), target, [codes, values, acc, y], workgroups=64)
    products = codes.astype(np.int32) * values.astype(np.int32)
    assert np.array_equal(y, acc + products.reshape(-1, 4).sum(axis=1))
