"""Who the CPU is: its model's name for people, its features for verdicts."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from llvmlite import binding

from crossinfer.jit.compile import llvm_version
from crossinfer.jit.target import Target


def model_name() -> str:
    """The processor's name as its maker writes it, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def driver_version(target: Target) -> str:
    """What a verdict depends on besides our kernels: compiler, instruction set, processor."""
    found = binding.get_host_cpu_features()
    features = ",".join(sorted(name for name, has in found.items() if has))
    processor = f"{binding.get_host_cpu_name()} {features}"
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    return f"LLVM {llvm_version()}, {target.name}, {binding.get_host_cpu_name()} {digest}"
