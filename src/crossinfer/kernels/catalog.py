"""Every shader that a lowering may choose or a benchmark runs: what a wheel carries compiled."""

from __future__ import annotations

from collections.abc import Iterator

from crossinfer.kernels import attention, linear, probe, row_ops, selection
from crossinfer.kernels.shader import ShaderKernel


def all_shaders() -> Iterator[ShaderKernel]:
    """Each shader once, family by family: first those that take longest to compile, so that a
    build's workers end at the same time.
    """
    for family in (attention, linear, row_ops, selection, probe):
        yield from family.shaders()
