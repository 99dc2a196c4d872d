"""What tells how fast a device computes at most: no op, but a limit to compare the kernels with."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crossinfer.hal.kernel import Lowering
from crossinfer.kernels.dispatching import MakeKernel, dispatch
from crossinfer.kernels.shader import ShaderKernel

_CHAINS = 16
_UNROLLED = 16
"""As in `hlsl/fma_rate.hlsl`."""
_THREADS = 256
_FMA_RATE = ShaderKernel("fma_rate", "fma_rate.hlsl", 0, 1, 12, _THREADS)


def shaders() -> Iterator[ShaderKernel]:
    """Every shader of this file."""
    yield _FMA_RATE


def lower_fma_rate(
    groups: int, rounds: int, factor: float, addend: float, make_kernel: MakeKernel
) -> Lowering:
    """Multiply-adds in float32, which writes a number for each thread to `output`."""
    run = dispatch(
        make_kernel(_FMA_RATE),
        _FMA_RATE,
        reads=(),
        writes=("output",),
        constants=struct.pack("<Iff", rounds, factor, addend),
        grid=(groups, 1, 1),
    )
    return Lowering((run,))


def fma_threads(groups: int) -> int:
    """The numbers that `lower_fma_rate` writes."""
    return groups * _THREADS


def fma_operations(groups: int, rounds: int) -> int:
    """What `lower_fma_rate` computes; a multiply-add counts as two."""
    return 2 * fma_threads(groups) * rounds * _CHAINS * _UNROLLED
