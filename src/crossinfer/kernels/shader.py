"""The description of one compute shader: what to compile, and what a pipeline must know."""

from __future__ import annotations

import dataclasses
import enum


class Target(enum.Enum):
    """What DXC makes of a shader. The value is the suffix of its file."""

    SPIRV = "spv"
    """SPIR-V for Vulkan 1.1."""
    DXIL = "dxil"
    """A signed container for Direct3D 12, shader model 6.0 at least."""


@dataclasses.dataclass(frozen=True)
class ShaderKernel:
    """A file of `hlsl/` with its defines. Equal descriptions are the same shader."""

    name: str
    """Family and variant, as `linear_vec[q4_k,t1,r2]`: what verdicts and timelines go by."""
    source: str
    reads: int
    """Views that are only read: t0 …"""
    writes: int
    """Views that are written: u0 …"""
    constant_bytes: int
    group_size: int
    """Threads of a group; the shader's defines say the same."""
    defines: tuple[tuple[str, str], ...] = ()
    entry: str = "main"
    shared_bytes: int = 1 << 14
    """Groupshared memory at most. The default is what every device has."""
    integer_dots: bool = False
    """Takes dot products of four bytes: OpSDot in SPIR-V, shader model 6.4 in DXIL."""


def define(**values: int) -> tuple[tuple[str, str], ...]:
    """Defines of integers, in the order given."""
    return tuple((name, str(value)) for name, value in values.items())
