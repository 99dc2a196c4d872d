"""Who the CPU is: its model's name for people, its features for verdicts."""

from __future__ import annotations

import functools
import hashlib
import platform

from crossinfer.jit.compile import compiler_version
from crossinfer.jit.linux_processor import first_core
from crossinfer.jit.target import Target

_IDENTITY = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU part", "CPU variant", "CPU revision", "Features"),
)
"""What tells a core from others in /proc/cpuinfo: on x86-64, and on AArch64."""


def model_name() -> str:
    """The processor's name as its maker writes it, or else its architecture."""
    return first_core().get("model name") or platform.processor() or platform.machine()


def driver_version(target: Target) -> str:
    """What a verdict depends on besides our kernels: compiler, instruction set, processor."""
    return f"{compiler_version()}, {target.name}, {_processor()}"


@functools.cache
def _processor() -> str:
    """A digest of the processor's features and model."""
    told = [first_core()[key] for key in _IDENTITY if key in first_core()]
    if not told:
        from llvmlite import binding

        features = binding.get_host_cpu_features()
        told = [binding.get_host_cpu_name(), *sorted(n for n, has in features.items() if has)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]
