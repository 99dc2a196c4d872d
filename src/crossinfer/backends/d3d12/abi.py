"""Calling conventions: how Python calls functions that were compiled for another system's rules.

libvkd3d on x86-64 keeps the convention of Windows (`ms_abi`), so that Windows programs can call it
directly. ctypes has no name for it outside Windows: a few instructions stand between, which take
the arguments as Linux passes them and pass them on as Windows does. They are written once for each
number of arguments. Arguments and results are integers and pointers; no method of Direct3D 12 or
DirectML passes a floating-point number or a structure by value.

    System V    rdi rsi rdx rcx r8 r9, then the stack from [rsp + 8]
    Windows     rcx rdx r8 r9, then the stack from [rsp + 40]: 32 bytes of the callee's come first
"""

from __future__ import annotations

import ctypes
import enum
import functools
import mmap
import struct
from collections.abc import Callable
from typing import Any

MOST_ARGUMENTS = 16
_CODE_BYTES = 256
"""Room for the code of one number of arguments."""
_PROT_READ, _PROT_EXEC = 1, 4


class Abi(enum.Enum):
    """The convention of a library. The value is how the setting names it."""

    WINDOWS = "windows"
    """What ctypes does on Windows."""
    MS = "ms"
    """Windows' convention elsewhere: libvkd3d on x86-64."""
    SYSV = "sysv"
    """What ctypes does elsewhere: vkd3d-proton's native build, and objects written in Python."""

    def function(self, address: int, returned: Any, arguments: tuple[Any, ...]) -> Any:
        """A Python callable for the function at `address`; the types are those of ctypes."""
        if self is not Abi.MS:
            return ctypes.CFUNCTYPE(returned, *arguments)(address)
        through = _through_thunk(returned, arguments)
        return functools.partial(through, address)


@functools.cache
def _through_thunk(returned: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Calls its first argument, an address, with the others."""
    prototype = ctypes.CFUNCTYPE(returned, ctypes.c_void_p, *arguments)
    return prototype(_code().address + _CODE_BYTES * len(arguments))


class _Code:
    """The instructions for every number of arguments; memory that can be executed, not written."""

    def __init__(self) -> None:
        code = b"".join(thunk(count).ljust(_CODE_BYTES, b"\xcc") for count in range(MOST_ARGUMENTS))
        self._memory = mmap.mmap(-1, len(code))
        self._memory.write(code)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if libc.mprotect(self.address, len(code), _PROT_READ | _PROT_EXEC):
            raise OSError(ctypes.get_errno(), "Memory for code was refused")


@functools.cache
def _code() -> _Code:
    return _Code()


def thunk(count: int) -> bytes:
    """x86-64 code: called as System V with (target, a0 … a[count - 1]), it calls target(a0 …) as
    Windows does, and returns what that returned.
    """
    on_stack = max(0, count - 4)
    frame = 32 + 8 * on_stack
    frame += 8 if frame % 16 == 0 else 0  # the stack is 8 off a multiple of 16 at our entry
    code = b"\x48\x81\xec" + struct.pack("<I", frame)  # sub rsp, frame
    if on_stack:
        code += b"\x4c\x89\x4c\x24\x20"  # mov [rsp + 32], r9: a4
    for index in range(5, count):
        code += b"\x48\x8b\x84\x24" + struct.pack("<I", frame + 8 + 8 * (index - 5))
        code += b"\x48\x89\x84\x24" + struct.pack("<I", 8 * index)  # mov rax, …; mov …, rax
    code += b"\x48\x89\xf8"  # mov rax, rdi: the target
    code += b"\x4d\x89\xc1"  # mov r9, r8: a3
    code += b"\x49\x89\xc8"  # mov r8, rcx: a2
    code += b"\x48\x89\xf1"  # mov rcx, rsi: a0; a1 is in rdx already
    code += b"\xff\xd0"  # call rax
    return code + b"\x48\x81\xc4" + struct.pack("<I", frame) + b"\xc3"  # add rsp, frame; ret
