"""rms_norm: root mean square normalisation of runs of D elements, optionally after an addition.

    sum = x + residual                      (x itself without a residual)
    output = sum / sqrt(mean(sum²) + eps) · weight

Views: x f32 [n·D], weight f32 [D], residual f32 [n·D] if there is one (read); output and, with a
residual, sum f32 [n·D] (written). Constants: n (runs), D, runs a workgroup, eps.
Dispatch: a workgroup is some whole runs. Sixteen partial sums of squares, lane by lane, then a
tree: the order depends on D alone.
"""

from __future__ import annotations

from crossinfer.jit.arithmetic import fma, minimum, reduce_add, sqrt
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i32

LANES = 16


def build_rms_norm(target: Target, symbol: str, has_residual: bool) -> str:
    k = KernelBuilder(symbol, target)
    if has_residual:
        x, weight, residual, output, total = k.views(f32, f32, f32, f32, f32)
    else:
        x, weight, output = k.views(f32, f32, f32)
    runs, D, step, eps = k.constants(i32, i32, i32, f32)
    with k.workgroups() as group:
        start = group * step
        with k.range(start, minimum(start + step, runs)) as run:
            offset = run * D
            normed = x + offset
            squares = k.variable(f32.x(LANES), 0.0)
            for at in k.vectors(0, D, LANES):
                v = at.load(normed)
                if has_residual:
                    v = v + at.load(residual + offset)
                    at.store(total + offset, v)
                squares.set(fma(v, v, squares.value))
            if has_residual:
                normed = total + offset
            mean_square = reduce_add(squares.value) / D.to(f32)
            factor = k.constant(f32, 1.0) / sqrt(mean_square + eps)
            for at in k.vectors(0, D, LANES):
                at.store(output + offset, at.load(normed) * factor * at.load(weight))
    return k.finish()
