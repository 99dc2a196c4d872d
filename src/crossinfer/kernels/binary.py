"""A shader's compiled code: from the package, from the cache, or from DXC.

An entry's name is a hash of the source with its includes, DXC's command line (defines and target
are in it) and DXC's release, so entries never go stale, and those of a wheel are found on every
platform. It starts with a checksum: an entry that was cut short or damaged is compiled again.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from crossinfer.core.cache import cache_folder, keep_entry, read_entry
from crossinfer.core.errors import KernelUnsupported
from crossinfer.kernels.dxc import Compiler, arguments
from crossinfer.kernels.fetch_dxc import RELEASE, library_path
from crossinfer.kernels.shader import ShaderKernel, Target
from crossinfer.kernels.source import shader_source

PACKAGED = Path(__file__).parent / "compiled"
"""Shaders that a wheel carries; a source checkout has none."""


def shader_binary(kernel: ShaderKernel, target: Target) -> bytes:
    """SPIR-V, or a signed DXIL container. Raises KernelUnsupported."""
    name = entry_name(kernel, target)
    packaged = read_entry(PACKAGED / name)
    return cached_binary(kernel, target) if packaged is None else packaged


def cached_binary(kernel: ShaderKernel, target: Target) -> bytes:
    """As `shader_binary`, without the package's shaders. Raises KernelUnsupported."""
    path = cache_folder("shaders") / entry_name(kernel, target)
    code = read_entry(path)
    if code is None:
        code = _compiler().compile(kernel, shader_source(kernel.source), target)
        keep_entry(path, code)
    return code


def is_cached(kernel: ShaderKernel, target: Target) -> bool:
    """Whether `cached_binary` need not compile."""
    return read_entry(cache_folder("shaders") / entry_name(kernel, target)) is not None


def entry_name(kernel: ShaderKernel, target: Target) -> str:
    """The file name of a compiled shader."""
    whole = "\0".join((RELEASE, shader_source(kernel.source), *arguments(kernel, target)))
    return f"{hashlib.sha256(whole.encode()).hexdigest()[:40]}.{target.value}"


@functools.cache
def _compiler() -> Compiler:
    path = library_path()
    if not path.exists():
        raise KernelUnsupported(
            "A shader must be compiled, and the compiler DXC is not here; "
            "fetch it with `make shaders` (`python -m crossinfer.kernels.build`)."
        )
    return Compiler(path)
