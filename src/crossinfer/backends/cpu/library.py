"""The kernels of this backend that are in memory, for one instruction set."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from crossinfer.backends.cpu.kernel import CpuKernel
from crossinfer.core.sources import sources_digest
from crossinfer.hal.kernel import Kernel
from crossinfer.jit.locks import lock_that_forks_wait_for
from crossinfer.jit.object_cache import load_generated
from crossinfer.jit.target import Target

_GENERATORS = ("jit", "backends/cpu/kernels", "formats", "graph")
"""The folders whose code decides what a kernel's IR is."""


def generator(module: str, function: str) -> Callable[..., str]:
    """A function of a module in `kernels`, which is imported when the function is called.

    Kernels are in the cache but for the first time, and the generators with the kernel builder take
    a tenth of a start to import.
    """

    def generate(*args: Any, **keywords: Any) -> str:
        found = importlib.import_module(f"crossinfer.backends.cpu.kernels.{module}")
        ir: str = getattr(found, function)(*args, **keywords)
        return ir

    return generate


class KernelLibrary:
    """Builds, compiles and loads kernels when they are first asked for. Thread-safe."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._kernels: dict[str, Kernel] = {}
        self._lock = lock_that_forks_wait_for()

    def get(self, name: str, symbol: str, build: Callable[[Target], str]) -> Kernel:
        """The kernel whose function is `symbol`; `build` gives its LLVM IR.

        `symbol` tells everything that the IR depends on besides the target; `name` is what
        verdicts and timelines go by. Raises KernelUnsupported.
        """
        with self._lock:
            if symbol not in self._kernels:
                key = f"{symbol} {kernel_code()}"
                code = load_generated(key, lambda: build(self.target), self.target, [symbol])
                self._kernels[symbol] = Kernel(name, CpuKernel(code.address(symbol), code))
            return self._kernels[symbol]


@functools.cache
def kernel_library(target: Target) -> KernelLibrary:
    """The library of this process for a target; devices share it."""
    return KernelLibrary(target)


def kernel_code() -> str:
    """A digest of the generators' sources: what they made before a change is not found again."""
    return sources_digest(*_GENERATORS)
