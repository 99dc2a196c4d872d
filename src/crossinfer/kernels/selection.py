"""argmax and top_k: the best elements of each row of logits, by slices where rows are long."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.kernel import LoweredDispatch, Lowering
from crossinfer.kernels.dispatching import MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel, define

_ARGMAX_SLICE = 4096
"""Elements of a slice of argmax; there are at most as many slices as elements of one."""
_TOP_K_SLICE = 1024
"""As in `hlsl/top_k.hlsl`."""
_LARGEST_K = _TOP_K_SLICE // 2
"""So that each dispatch leaves at most half of the elements."""

_ARGMAX = ShaderKernel("argmax", "argmax.hlsl", 1, 1, 12, 256, define(CANDIDATES=0))
_ARGMAX_SLICES = ShaderKernel(
    "argmax[candidates]", "argmax.hlsl", 1, 1, 12, 256, define(CANDIDATES=1)
)
_TOP_K = ShaderKernel("top_k", "top_k.hlsl", 1, 2, 12, 256, define(CANDIDATES=0))
_TOP_K_SLICES = ShaderKernel("top_k[candidates]", "top_k.hlsl", 2, 2, 12, 256, define(CANDIDATES=1))


def shaders() -> Iterator[ShaderKernel]:
    """Every shader that the lowerings here may choose."""
    yield from (_ARGMAX, _ARGMAX_SLICES, _TOP_K, _TOP_K_SLICES)


def lower_argmax(operands: Operands, make_kernel: MakeKernel) -> Lowering:
    """argmax in one dispatch, or in two for long rows."""
    R, V = operands["x"].shape
    slices = ceil_div(V, _ARGMAX_SLICE)

    def run(shader: ShaderKernel, source: str, target: str, *sizes: int) -> LoweredDispatch:
        return dispatch(
            make_kernel(shader),
            shader,
            reads=(source,),
            writes=(target,),
            constants=struct.pack("<3I", *sizes),
            grid=(sizes[1], R, 1),
        )

    if slices == 1:
        return Lowering((run(_ARGMAX, "x", "output", V, 1, V),))
    best = "argmax of slices"
    return Lowering(
        (
            run(_ARGMAX, "x", best, V, slices, _ARGMAX_SLICE),
            run(_ARGMAX_SLICES, best, "output", slices, 1, slices),
        ),
        {best: 8 * R * slices},
    )


def lower_top_k(op: TopK, operands: Operands, make_kernel: MakeKernel) -> Sequence[Lowering]:
    """top_k by slices of slices; none for a k that the kernels do not take."""
    if op.k > _LARGEST_K:
        return ()
    R, columns = operands["x"].shape
    reads: tuple[str, ...] = ("x",)
    runs: list[LoweredDispatch] = []
    scratch: dict[str, int] = {}
    while True:
        slices = ceil_div(columns, _TOP_K_SLICE)
        writes = ("values", "indices")
        if slices > 1:
            level = len(runs)
            writes = (f"top_k values {level}", f"top_k indices {level}")
            scratch |= dict.fromkeys(writes, 4 * R * slices * op.k)
        shader = _TOP_K_SLICES if runs else _TOP_K
        runs.append(
            dispatch(
                make_kernel(shader),
                shader,
                reads=reads,
                writes=writes,
                constants=struct.pack("<3I", columns, slices, op.k),
                grid=(slices, R, 1),
            )
        )
        if slices == 1:
            return (Lowering(tuple(runs), scratch),)
        reads, columns = writes, slices * op.k
