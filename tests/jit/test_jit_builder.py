"""The kernel builder: control flow, memory, operators, and what it refuses."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.jit.kernel_calls import call_kernel

from crossinfer.jit.arithmetic import any_lane, concatenate, maximum, minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target, host_target, host_targets
from crossinfer.jit.types import f16, f32, i8, i32, i64, u8, u32

TARGETS = pytest.mark.parametrize("target", host_targets(), ids=lambda target: target.name)


@TARGETS
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 100])
def test_vectors_with_a_tail_touch_nothing_else(target: Target, length: int) -> None:
    k = KernelBuilder("kernel", target)
    x, y = k.views(f32, f32)
    (n,) = k.constants(i32)
    for at in k.vectors(0, n, 16):
        at.store(y, at.load(x, otherwise=7) + 1.0)
    x_values = np.random.default_rng().standard_normal(length + 1).astype(np.float32)
    y_values = np.full(128, -1, np.float32)
    call_kernel(k.finish(), target, [x_values, y_values], struct.pack("<i", length))
    assert np.array_equal(y_values[:length], x_values[:length] + 1)
    assert np.all(y_values[length:] == -1)


def test_loops_variables_and_branches() -> None:
    """Collatz steps of every number: a loop in a loop, with a branch and an exit."""
    k = KernelBuilder("kernel", host_target())
    (steps,) = k.views(i32)
    with k.workgroups() as group:
        n, count = k.variable(i64, group + 1), k.variable(i32, 0)
        with k.while_() as loop:
            loop.end_if(n.value == 1)
            with k.if_else(n.value % 2 == 0) as (then, otherwise):
                with then:
                    n.set(n.value // 2)
                with otherwise:
                    n.set(n.value * 3 + 1)
            count += 1
        steps[group] = count.value
    result = np.zeros(30, np.int32)
    call_kernel(k.finish(), host_target(), [result], workgroups=30)

    def collatz(n: int) -> int:
        return 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert result.tolist() == [collatz(n + 1) for n in range(30)]


def test_return_leaves_the_kernel() -> None:
    k = KernelBuilder("kernel", host_target())
    (y,) = k.views(i32)
    (limit,) = k.constants(i32)
    with k.workgroups() as group:
        k.return_if(group == limit)
        y[group] = 1
    result = np.zeros(8, np.int32)
    call_kernel(k.finish(), host_target(), [result], struct.pack("<i", 5), workgroups=8)
    assert result.tolist() == [1] * 5 + [0] * 3


def test_signs_decide_shifts_divisions_and_conversions() -> None:
    k = KernelBuilder("kernel", host_target())
    signed, result = k.views(i8, i32)
    unsigned = signed.cast(u8)
    s, u = signed[0].to(i32), unsigned[0].to(u32)
    wanted = [s, u, s >> 1, u >> 1, s // 3, u // 3, s % 5, u % 5]
    for number, value in enumerate(wanted):
        result[number] = value.to(i32)
    result[8] = signed[0].to(f32).to(i32)
    result[9] = unsigned[0].to(f32).to(i32)
    y = np.zeros(10, np.int32)
    call_kernel(k.finish(), host_target(), [np.array([-7], np.int8), y])
    assert y.tolist() == [-7, 249, -4, 124, -2, 83, -2, 4, -7, 249]


def test_lanes_move_where_they_are_told() -> None:
    k = KernelBuilder("kernel", host_target())
    x, y = k.views(i32, i32)
    v = x.vector(0, 8)
    y.store(0, v.shuffle([7, 0, 8, 15], v + 10))
    y.store(4, concatenate([v.part(6, 2), v.part(0, 2)]))
    y[8] = v.lane(3)
    y.store(9, v.with_lane(1, k.constant(i32, 99)))
    y[17] = any_lane(v == 5).select(k.constant(i32, 1), 0)
    y[18] = any_lane(v == 50).select(k.constant(i32, 1), 0)
    y[19] = maximum(v.lane(2), 5) + minimum(v.lane(2), 5)
    result = np.zeros(20, np.int32)
    call_kernel(k.finish(), host_target(), [np.arange(8, dtype=np.int32), result])
    assert result.tolist() == [
        *(7, 0, 10, 17),
        *(6, 7, 0, 1),
        3,
        *(0, 99, 2, 3, 4, 5, 6, 7),
        *(1, 0, 7),
    ]


def test_mistakes_are_told_when_the_kernel_is_built() -> None:
    k = KernelBuilder("kernel", host_target())
    x, y, h = k.views(f32, i32, f16)
    with pytest.raises(TypeError, match="do not combine"):
        x[0] + y[0]
    with pytest.raises(TypeError, match="no operator"):
        x[0] >> 1
    with pytest.raises(TypeError, match="no operator"):
        h[0] + h[1]
    with pytest.raises(TypeError, match="different numbers of lanes"):
        x.vector(0, 4) + x.vector(0, 8)
    with pytest.raises(TypeError, match="cannot store"):
        x[0] = y[0]
    with pytest.raises(TypeError, match="is no index"):
        x[x[0]]
    with pytest.raises(ValueError, match="is not a value of type"):
        y[0] + (1 << 40)
