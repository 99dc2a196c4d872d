"""What kernels are compiled for: an instruction set, and what the generator must know of it.

Targets name an architecture level, never the host's processor: the code that is tested here under
a level is the code that runs on every machine of that level.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import sys
from collections.abc import Mapping

from crossinfer.core.records import record
from crossinfer.jit.linux_processor import first_core


@record
class Target:
    """One instruction set of one operating system.

    `cpu` and `features` are what LLVM is given; `abilities` are the features that the generator
    itself asks about, by LLVM's names.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    abilities: frozenset[str]

    def has(self, ability: str) -> bool:
        return ability in self.abilities

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    def lanes(self, bits: int = 32) -> int:
        """Elements of `bits` bits in one vector register."""
        return self.vector_bits // bits

    def for_triple(self, triple: str) -> Target:
        """The same instruction set on another operating system."""
        return dataclasses.replace(self, triple=triple)


LINUX_X86 = "x86_64-unknown-linux-gnu"
WINDOWS_X86 = "x86_64-pc-windows-msvc"
LINUX_ARM = "aarch64-unknown-linux-gnu"
MACOS_ARM = "arm64-apple-darwin"

_AVX2 = frozenset({"sse2", "ssse3", "avx2", "fma", "f16c"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl"}

PLAIN_X86 = Target("x86-64", LINUX_X86, "x86-64", "", 128, frozenset({"sse2"}))
AVX2 = Target("avx2", LINUX_X86, "x86-64-v3", "", 256, _AVX2)
AVX_VNNI = Target("avx-vnni", LINUX_X86, "x86-64-v3", "+avxvnni", 256, _AVX2 | {"avxvnni"})
"""Intel's processors for laptops and desktops since 2021 have no AVX-512, but its byte products."""
AVX512 = Target("avx512", LINUX_X86, "x86-64-v4", "", 512, _AVX512)
AVX512_VNNI = Target(
    "avx512-vnni",
    LINUX_X86,
    "x86-64-v4",
    "+avx512vnni",
    512,
    _AVX512 | {"avx512vnni"},
)
AVX512_BF16 = Target(
    "avx512-bf16",
    LINUX_X86,
    "x86-64-v4",
    "+avx512vnni,+avx512bf16",
    512,
    AVX512_VNNI.abilities | {"avx512bf16"},
)
"""For the kernels that need it alone; the others are those of AVX512_VNNI."""
PLAIN_ARM = Target("armv8", LINUX_ARM, "generic", "+neon", 128, frozenset({"neon", "fma", "f16c"}))
ARM_DOTPROD = Target(
    "armv8-dotprod",
    LINUX_ARM,
    "generic",
    "+neon,+dotprod",
    128,
    PLAIN_ARM.abilities | {"dotprod"},
)

X86_TARGETS = (AVX512_VNNI, AVX512, AVX_VNNI, AVX2, PLAIN_X86)
ARM_TARGETS = (ARM_DOTPROD, PLAIN_ARM)

# What the processor must report before a target may run on it; the levels' full lists, as far as
# LLVM tells them.
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_REQUIRED: dict[str, tuple[str, ...]] = {
    PLAIN_X86.name: (),
    AVX2.name: _V3,
    AVX_VNNI.name: (*_V3, "avxvnni"),
    AVX512.name: _V4,
    AVX512_VNNI.name: (*_V4, "avx512vnni"),
    AVX512_BF16.name: (*_V4, "avx512vnni", "avx512bf16"),
    PLAIN_ARM.name: (),
    ARM_DOTPROD.name: ("dotprod",),
}


@functools.cache
def host_targets() -> tuple[Target, ...]:
    """The targets that this machine can run, best first."""
    is_arm = platform.machine().lower() in ("aarch64", "arm64")
    return tuple(
        target.for_triple(_host_triple())
        for target in (ARM_TARGETS if is_arm else X86_TARGETS)
        if _runs_here(target)
    )


def host_target() -> Target:
    """The best target that this machine can run."""
    return host_targets()[0]


def short_float_target(target: Target) -> Target | None:
    """`target` with products of bfloat16, if this machine has them."""
    if target.name != AVX512_VNNI.name or not _runs_here(AVX512_BF16):
        return None
    return AVX512_BF16.for_triple(target.triple)


def _runs_here(target: Target) -> bool:
    features = _host_features()
    return all(features.get(feature, False) for feature in _REQUIRED[target.name])


@functools.cache
def _host_triple() -> str:
    is_arm = platform.machine().lower() in ("aarch64", "arm64")
    triple = {
        ("linux", False): LINUX_X86,
        ("linux", True): LINUX_ARM,
        ("win32", False): WINDOWS_X86,
        ("darwin", True): MACOS_ARM,
    }.get((sys.platform, is_arm))
    return triple or _process_triple()


@functools.cache
def _host_features() -> Mapping[str, bool]:
    """What the processor has, by LLVM's names: of those that targets require at least."""
    found = _features_by_linux() if sys.platform == "linux" else None
    if found is None:
        from llvmlite import binding

        return dict(binding.get_host_cpu_features())
    return found


def _features_by_linux() -> dict[str, bool] | None:
    """The same without loading LLVM, on x86-64; the kernel lists what it lets programs use."""
    flags = set(first_core().get("flags", "").split())
    names = {name for required in _REQUIRED.values() for name in required}
    return {name: _FLAGS.get(name, name) in flags for name in names} if flags else None


_FLAGS = {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
}
"""What Linux calls the features that it has other names for."""


def _process_triple() -> str:
    from llvmlite import binding

    return str(binding.get_process_triple())
