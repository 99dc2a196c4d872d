"""DXC through its library: HLSL in, SPIR-V or DXIL out.

The library's objects are COM objects: a pointer to a table of functions, called by their slot. Off
Windows this build's IUnknown has a virtual destructor, which takes two slots after Release.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossinfer.core.errors import KernelUnsupported
from crossinfer.kernels.dxil_container import sign
from crossinfer.kernels.shader import ShaderKernel, Target

_RELEASE = 2
_FIRST = 3 if sys.platform == "win32" else 5
"""The slot of an interface's first own method."""
_COMPILE = _FIRST
_STATUS, _RESULT, _ERRORS = _FIRST, _FIRST + 1, _FIRST + 2
_BLOB_POINTER, _BLOB_SIZE = _FIRST, _FIRST + 1
_UTF8 = 65001

# Everything that decides what a target's code looks like, besides the shader.
_ARGUMENTS = {
    Target.SPIRV: ("-spirv", "-fspv-target-env=vulkan1.1", "-DSPIRV=1"),
    Target.DXIL: ("-Qstrip_debug", "-Qstrip_reflect", "-DSPIRV=0"),
}
_COMMON = ("-HV", "2021", "-O3", "-WX")


class _Buffer(ctypes.Structure):
    """DxcBuffer."""

    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("encoding", ctypes.c_uint),
    )


def _guid(text: str) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text).bytes_le)


_COMPILER_CLASS = _guid("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0")
_COMPILER = _guid("228b4687-5a6a-4730-900c-9702b2203f54")
_COMPILE_RESULT = _guid("58346cda-dde7-4497-9461-6f87af5e0659")


def arguments(kernel: ShaderKernel, target: Target) -> tuple[str, ...]:
    """DXC's command line for a shader."""
    defines = tuple(f"-D{name}={value}" for name, value in kernel.defines)
    shifts: tuple[str, ...] = ()
    if target is Target.SPIRV:
        shifts = ("-fvk-u-shift", str(kernel.reads), "0")
    model = "cs_6_4" if kernel.integer_dots else "cs_6_0"
    return ("-T", model, *_COMMON, "-E", kernel.entry, *_ARGUMENTS[target], *shifts, *defines)


class Compiler:
    """DXC, loaded. One thread at a time compiles with it."""

    def __init__(self, library: Path) -> None:
        """Raises KernelUnsupported if the library cannot be used."""
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise KernelUnsupported(
                f"The shader compiler {library} cannot be loaded: {error}."
            ) from error
        self._lock = threading.Lock()
        self._compiler = ctypes.c_void_p()
        status = self._library.DxcCreateInstance(
            _COMPILER_CLASS, _COMPILER, ctypes.byref(self._compiler)
        )
        if status != 0:
            raise KernelUnsupported(f"The shader compiler {library} does not start ({status:#x}).")

    def compile(self, kernel: ShaderKernel, source: str, target: Target) -> bytes:
        """`source` is the shader's text with its includes put in. Raises KernelUnsupported."""
        with self._lock:
            code, messages = self._compile(source, arguments(kernel, target))
        if not code:
            defines = ", ".join(f"{name}={value}" for name, value in kernel.defines)
            raise KernelUnsupported(
                f"The shader {kernel.source} for {kernel.name} does not compile to "
                f"{target.value} with the defines {defines or '(none)'}:\n{messages.strip()}"
            )
        return sign(code) if target is Target.DXIL else code

    def _compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """The code, empty if there were errors, and DXC's messages."""
        text = source.encode()
        held = ctypes.create_string_buffer(text, len(text))
        buffer = _Buffer(ctypes.cast(held, ctypes.c_void_p), len(text), _UTF8)
        argument_list = (ctypes.c_wchar_p * len(options))(*options)
        result = ctypes.c_void_p()
        status = _call(
            self._compiler,
            _COMPILE,
            ctypes.byref(buffer),
            argument_list,
            ctypes.c_uint32(len(options)),
            None,
            _COMPILE_RESULT,
            ctypes.byref(result),
        )
        if status != 0:
            return b"", f"DXC refused the request ({status & 0xFFFFFFFF:#x})."
        try:
            outcome = ctypes.c_int32()
            _call(result, _STATUS, ctypes.byref(outcome))
            messages = _blob(result, _ERRORS).decode(errors="replace")
            return (b"" if outcome.value else _blob(result, _RESULT)), messages
        finally:
            _call(result, _RELEASE)


def _call(target: ctypes.c_void_p, slot: int, *values: Any, returns: Any = ctypes.c_int32) -> Any:
    """Method `slot` of a COM object."""
    table = ctypes.cast(target, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    method = _prototype(returns, len(values))(table[slot])
    return method(target, *(_pointer(value) for value in values))


@functools.cache
def _prototype(returns: Any, count: int) -> Any:
    # Every argument that these methods take fits a pointer-sized integer register.
    return ctypes.CFUNCTYPE(returns, *(ctypes.c_void_p,) * (count + 1))


def _pointer(value: Any) -> Any:
    if isinstance(value, ctypes.c_uint32):
        return ctypes.c_void_p(value.value)
    return value if value is None else ctypes.cast(value, ctypes.c_void_p)


def _blob(result: ctypes.c_void_p, slot: int) -> bytes:
    """What a method of a result gives as a blob, copied."""
    blob = ctypes.c_void_p()
    _call(result, slot, ctypes.byref(blob))
    if not blob:
        return b""
    try:
        size = _call(blob, _BLOB_SIZE, returns=ctypes.c_size_t)
        return ctypes.string_at(_call(blob, _BLOB_POINTER, returns=ctypes.c_void_p), size)
    finally:
        _call(blob, _RELEASE)
