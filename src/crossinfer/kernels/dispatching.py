"""What the lowerings of all families use: the device's capabilities, dispatches, grids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from crossinfer.core.shapes import ceil_div
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Argument, Grid, Kernel, LoweredDispatch
from crossinfer.kernels.shader import ShaderKernel

MakeKernel = Callable[[ShaderKernel], Kernel]
"""A backend's: the kernel of a shader, the same one each time. Makes no pipeline yet."""

_GRID_LINE = 32768
"""As in `hlsl/common.hlsli`."""


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a choice of kernels depends on."""

    fill_groups: int = 64
    """Groups of 128 threads that keep the device busy: about four for each of its processors."""
    max_view_bytes: int = 1 << 27
    """What a dispatch can see of a buffer; below 2^32. The default is what every device allows."""
    shared_bytes: int = 1 << 15
    """Groupshared memory of a group. Direct3D 12 promises the default, Vulkan half of it."""
    integer_dots: bool = False
    """Whether there are dot products of four bytes."""
    fast_integer_dots: bool = False
    """Whether those are instructions of the hardware, and better than products of floats."""


def dispatch(
    kernel: Kernel,
    shader: ShaderKernel,
    *,
    reads: Sequence[str],
    writes: Sequence[str],
    updates: Collection[str] = (),
    constants: bytes,
    grid: Grid,
) -> LoweredDispatch:
    """A dispatch over operands by name, in the order of the shader's t and u registers.

    Of what is written, `updates` is read as well.
    """
    given = len(reads), len(writes), len(constants)
    assert given == (shader.reads, shader.writes, shader.constant_bytes), shader.name
    arguments = (
        *(Argument(name, Access.READ) for name in reads),
        *(
            Argument(name, Access.READ_WRITE if name in updates else Access.WRITE)
            for name in writes
        ),
    )
    return LoweredDispatch(kernel, arguments, constants, grid)


def flat_grid(groups: int) -> Grid:
    """A grid of at least `groups` groups, in lines if they are too many for one axis."""
    if groups <= _GRID_LINE:
        return (groups, 1, 1)
    return (_GRID_LINE, ceil_div(groups, _GRID_LINE), 1)


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()
