"""The packet processor: native code that the worker threads run, made from `native/*.ll`.

The parts are one LLVM module: `worker` (the loop), `start` (which packet may start), `run` (chunks,
completion), `host` (what the submitter calls), one part for the operating system and one for the
instruction set.
"""

from __future__ import annotations

import ctypes
import functools
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossinfer.backends.cpu.layout import NAMES
from crossinfer.core.errors import KernelUnsupported
from crossinfer.core.records import record
from crossinfer.jit.machine_code import LoadedCode
from crossinfer.jit.object_cache import load_cached
from crossinfer.jit.target import Target, host_target

_PARTS = ("worker", "run", "start", "host")
_SYSTEMS = {"linux": "linux", "windows": "windows", "darwin": "macos", "macos": "macos"}
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}
_PREFIX = "crossinfer_"
_SYMBOLS = ("worker", "rung", "stop", "fence", "wait_signal", "wait_space")


@record
class Processor:
    """The native functions. Pointers are addresses, times nanoseconds.

    `worker(queue, index)` returns when the queue is stopped. `wait_signal(signal, timeout, spin)`
    and `wait_space(queue, read_index, timeout)` give 1 if what they wait for is so; 0 after the
    timeout, or earlier.
    """

    code: LoadedCode
    worker: Callable[[int, int], None]
    rung: Callable[[int], None]
    stop: Callable[[int], None]
    fence: Callable[[], None]
    wait_signal: Callable[[int, int, int], int]
    wait_space: Callable[[int, int, int], int]


def processor_text(target: Target) -> str:
    """The module for a target. Raises KernelUnsupported for an unknown system or architecture."""
    return "\n".join([*(_part(name, {}) for name in _PARTS), platform_text(target)])


def platform_text(target: Target) -> str:
    """The functions that depend on the system: wait_on, wake, now, give_way, pause.

    Raises KernelUnsupported for an unknown system or architecture.
    """
    architecture, _, rest = target.triple.partition("-")
    system = next((part for name, part in _SYSTEMS.items() if name in rest), None)
    if system is None or architecture not in _ARCHITECTURES:
        raise KernelUnsupported(f"The CPU's queue does not know the system {target.triple}.")
    architecture = _ARCHITECTURES[architecture]
    numbers = {"sys_futex": _FUTEX_CALL[architecture]}
    return "\n".join([_part(system, numbers), _part(architecture, {})])


def _part(name: str, numbers: Mapping[str, int]) -> str:
    text = Path(__file__).with_name("native").joinpath(f"{name}.ll").read_text("ascii")
    return string.Template(text).substitute(NAMES, **numbers)


@functools.cache
def load_processor() -> Processor:
    """The processor for this machine. Raises KernelUnsupported."""
    target = host_target()
    code = load_cached(processor_text(target), target, [_PREFIX + name for name in _SYMBOLS])

    def function(
        kind: Callable[..., type[ctypes._CFunctionType]], name: str, *types: type | None
    ) -> Callable[..., Any]:
        return kind(*types)(code.address(_PREFIX + name))

    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    # CFUNCTYPE releases the interpreter lock during the call; what returns at once keeps it.
    waits, returns = ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE
    return Processor(
        code,
        worker=function(waits, "worker", None, pointer, i32),
        rung=function(returns, "rung", None, pointer),
        stop=function(returns, "stop", None, pointer),
        fence=function(returns, "fence", None),
        wait_signal=function(waits, "wait_signal", i32, pointer, i64, i64),
        wait_space=function(waits, "wait_space", i32, pointer, i64, i64),
    )
