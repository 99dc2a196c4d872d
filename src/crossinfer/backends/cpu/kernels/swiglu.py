"""swiglu: output = gate · sigmoid(gate) · up, element by element.

Views: gate, up f32 [n] (read), output f32 [n] (written). Constants: n, elements a workgroup.
Dispatch: a workgroup is a run of elements, whatever row they are in.
"""

from __future__ import annotations

from crossinfer.backends.cpu.kernels.activation import silu
from crossinfer.jit.arithmetic import minimum
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i32

LANES = 16


def build_swiglu(target: Target) -> str:
    k = KernelBuilder("swiglu", target)
    gate, up, output = k.views(f32, f32, f32)
    n, step = k.constants(i32, i32)
    with k.workgroups() as group:
        start = group * step
        end = minimum(start + step, n)
        for at in k.vectors(start, end, LANES):
            at.store(output, silu(at.load(gate)) * at.load(up))
    return k.finish()
