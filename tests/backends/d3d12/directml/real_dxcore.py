"""An adapter as DXCore describes it, for a DirectML that asks who it runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_WORD = ctypes.c_uint64
_METHOD = ctypes.CFUNCTYPE(_WORD, *[_WORD] * 5)
_SLOTS = 12
_E_NOTIMPL = 0x80004001

# DXCoreAdapterProperty to its value: driver version, description, hardware id (vendor, device,
# subsystem, revision), memory, and what kind of adapter it is.
_PROPERTIES = {
    1: bytes(8),
    2: b"libvkd3d\0",
    3: bytes(16),
    7: (1 << 30).to_bytes(8, "little"),
    8: bytes(8),
    9: (1 << 30).to_bytes(8, "little"),
    11: b"\1",
    12: b"\0",
}


class DxCore:
    """`create_factory` is DXCoreCreateAdapterFactory; the factory knows one adapter."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        adapter = self._object(
            {
                3: lambda *_: 1,  # IsValid
                4: lambda *_: 1,  # IsAttributeSupported
                5: lambda *a: a[1] & 0xFFFFFFFF in _PROPERTIES,  # IsPropertySupported
                6: _property,
                7: _property_size,
            }
        )
        # GetAdapterByLuid(luid, id, place)
        factory = self._object({4: lambda *a: _store(a[3], adapter)})
        prototype = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self.create_factory = prototype(lambda _, place: _store(place, factory))

    def _object(self, methods: dict[int, Callable[..., int]]) -> int:
        own: dict[int, Callable[..., int]] = {
            0: lambda *a: _store(a[2], a[0]),  # QueryInterface
            1: lambda *_: 2,  # it is never released
            2: lambda *_: 1,
            **methods,
        }
        callbacks = [_METHOD(own.get(slot, lambda *_: _E_NOTIMPL)) for slot in range(_SLOTS)]
        table = (ctypes.c_void_p * _SLOTS)(
            *(ctypes.cast(callback, ctypes.c_void_p).value for callback in callbacks)
        )
        memory = (ctypes.c_void_p * 1)(ctypes.addressof(table))
        self._kept += [callbacks, table, memory]
        return ctypes.addressof(memory)


def _store(place: int, value: int) -> int:
    _WORD.from_address(place).value = value
    return 0


def _property(*arguments: int) -> int:
    """GetProperty(number, size, place)"""
    _, number, size, place, *_ = arguments
    value = _PROPERTIES.get(number & 0xFFFFFFFF, b"")
    ctypes.memmove(place, value.ljust(size, b"\0"), size)
    return 0


def _property_size(*arguments: int) -> int:
    """GetPropertySize(number, place)"""
    _, number, place, *_ = arguments
    return _store(place, len(_PROPERTIES.get(number & 0xFFFFFFFF, b"\0")))
