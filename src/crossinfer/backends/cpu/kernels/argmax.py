"""argmax: the lowest index of each row's largest element; -1 if there is none to be trusted.

    output[r] = min { i : x[r, i] = max x[r] }      -1 if x[r] holds a NaN, or its maximum is ±∞

Views: x f32 [R, V] (read), output i32 [R] (written). Constants: V.
Dispatch: a workgroup is a row. Each of sixteen lanes keeps the first of its largest elements; then
the lowest index wins among the lanes that hold the maximum.
"""

from __future__ import annotations

import math

from crossinfer.jit.arithmetic import absolute, any_lane, reduce_max, reduce_min
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i1, i32

LANES = 16
_NO_INDEX = 2**31 - 1


def build_argmax(target: Target) -> str:
    k = KernelBuilder("argmax", target)
    x, output = k.views(f32, i32)
    (V,) = k.constants(i32)
    with k.workgroups() as row:
        logits = x + row * V
        best = k.variable(f32.x(LANES), -math.inf)
        index = k.variable(i32.x(LANES), _NO_INDEX)
        broken = k.variable(i1.x(LANES), 0)
        for at in k.vectors(0, V, LANES):
            v = at.load(logits, -math.inf)
            is_better = v > best.value
            best.set(is_better.select(v, best.value))
            index.set(is_better.select(k.lane_numbers(LANES) + at.start.to(i32), index.value))
            broken.set(broken.value | v.is_nan())
        largest = reduce_max(best.value)
        winner = reduce_min((best.value == largest).select(index.value, _NO_INDEX))
        is_usable = (absolute(largest) < math.inf) & ~any_lane(broken.value)
        output[row] = is_usable.select(winner, -1)
    return k.finish()
