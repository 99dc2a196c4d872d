"""Linked images in executable memory, which is never writable at the same time."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
from typing import Any

from crossinfer.core.shapes import align_up
from crossinfer.jit.elf import Image, LinkError, link


class LoadedCode:
    """Functions in executable memory; unloaded when nobody holds them any more."""

    def __init__(self, addresses: dict[str, int], memory: object) -> None:
        self._addresses = addresses
        self._memory = memory

    def address(self, symbol: str) -> int:
        """Where a symbol that was asked for lies."""
        return self._addresses[symbol]


def load_elf(code: bytes, symbols: list[str]) -> LoadedCode:
    """Loads an object for this machine without LLVM.

    Raises LinkError where that is left to LLVM: on other systems than Linux on x86-64, for what
    `elf` does not know, and if one of the `symbols` is missing.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise LinkError("this system has other objects")
    image = link(code, _address_in_c_library)
    if missing := set(symbols) - image.symbols.keys():
        raise LinkError(f"it does not define {min(missing)}")
    try:
        memory = _map(image)
    except OSError as error:
        raise LinkError(f"it cannot be mapped: {error}") from error
    start = _address(memory)
    return LoadedCode({name: start + image.symbols[name] for name in symbols}, memory)


def _map(image: Image) -> mmap.mmap:
    """The image in memory of its own: written, then made code and data that only can be read."""
    size = align_up(max(len(image.data), 1), mmap.PAGESIZE)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size, private, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[: len(image.data)] = image.data
    start = _address(memory)
    _protect(start, image.code_bytes, mmap.PROT_READ | mmap.PROT_EXEC)
    _protect(start + image.code_bytes, size - image.code_bytes, mmap.PROT_READ)
    return memory


def _protect(address: int, size: int, protection: int) -> None:
    if size and _c_library().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@functools.cache
def _c_library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _address_in_c_library(name: str) -> int:
    try:
        function = getattr(_c_library(), name)
    except AttributeError:
        raise LinkError(f"this process has no {name}") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0
