"""Faces of System V's convention for libvkd3d's objects, whose methods follow Windows'.

A C++ library on Linux calls methods as C++ does there: System V, large results through a first
argument, small ones in a register. A face is an object of that kind which hands each call on, and
turns faces among its arguments into the objects behind them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComObject

_WORD = ctypes.c_uint64
_ARGUMENTS = 8
"""As many as any method called here has, with the object."""
_SLOTS = 96
_METHOD = ctypes.CFUNCTYPE(_WORD, *[_WORD] * _ARGUMENTS)
_E_FAIL = 0x80004005

DEVICE, LIST, HEAP, RESOURCE, OTHER = "device", "list", "heap", "resource", "other"

_QUERY_INTERFACE, _GET_DEVICE = 0, 7
_CHECK_FEATURE, _CREATE_PIPELINE, _SET_HEAPS, _BARRIER = 13, 11, 28, 26
# Methods of the device that make something: slot to (its kind, the argument with its place).
_MAKES = {
    8: (OTHER, 3),
    9: (OTHER, 3),
    _CREATE_PIPELINE: (OTHER, 3),
    12: (LIST, 6),
    14: (HEAP, 3),
    16: (OTHER, 5),
    27: (RESOURCE, 7),
    36: (OTHER, 4),
}
# Results that are returned in a register by C++, and through a pointer by libvkd3d.
_SMALL_RESULTS = {(HEAP, 9), (HEAP, 10), (DEVICE, 43)}
_LARGE_RESULTS = {(RESOURCE, 10)}
_BARRIER_BYTES, _BARRIER_RESOURCE = 32, 8
_OPTIONS4, _NATIVE_16_BIT = 23, 8
"""A feature of the device, and where in its answer the one about 16-bit operations is."""


class Faces:
    """The faces of one process. `claims_half`: the device says that it has 16-bit operations."""

    def __init__(self, *, claims_half: bool) -> None:
        self.problems: list[str] = []
        self._claims_half = claims_half
        self._face_of: dict[tuple[int, str], int] = {}
        self._behind: dict[int, int] = {}
        self._kept: list[Any] = []

    def face(self, address: int, kind: str) -> int:
        """The face of an object, the same one each time."""
        if not address:
            return 0
        if (address, kind) not in self._face_of:
            callbacks = [
                _METHOD(lambda *arguments, at=slot: self._guarded(kind, at, arguments))
                for slot in range(_SLOTS)
            ]
            table = (ctypes.c_void_p * _SLOTS)(
                *(ctypes.cast(callback, ctypes.c_void_p).value for callback in callbacks)
            )
            memory = (ctypes.c_void_p * 1)(ctypes.addressof(table))
            self._kept += [callbacks, table, memory]
            self._face_of[address, kind] = ctypes.addressof(memory)
            self._behind[ctypes.addressof(memory)] = address
        return self._face_of[address, kind]

    def com(self, of: ComObject, kind: str) -> ComObject:
        """A face as our code holds objects, with a reference of its own."""
        of.AddRef()
        return ComObject(self.face(of.address, kind), of.interface, Abi.SYSV)

    def behind(self, value: int) -> int:
        """The object behind a face; whatever else is given stays."""
        return self._behind.get(value, value)

    def give(self, place: int, kind: str) -> None:
        """Replace the object that a call has stored by its face."""
        if place:
            stored = _WORD.from_address(place)
            stored.value = self.face(stored.value, kind)

    def _guarded(self, kind: str, slot: int, arguments: Sequence[int]) -> int:
        try:
            return self._call(kind, slot, arguments)
        except Exception as error:  # it cannot cross the library's frames
            self.problems.append(f"{kind}, slot {slot}: {error!r}")
            return _E_FAIL

    def _call(self, kind: str, slot: int, arguments: Sequence[int]) -> int:
        if (kind, slot) in _LARGE_RESULTS:
            place, this = arguments[:2]
            call_method(self.behind(this), slot, self.behind(this), place)
            return place
        this, *rest = (self.behind(argument) for argument in arguments)
        if (kind, slot) in _SMALL_RESULTS:
            result = _WORD()
            call_method(this, slot, this, ctypes.addressof(result))
            return result.value
        held = self._translated(kind, slot, rest)
        result_code = call_method(this, slot, this, *rest)
        del held
        if result_code & 0x80000000 and slot == _QUERY_INTERFACE:
            return result_code
        if slot == _QUERY_INTERFACE:
            self.give(rest[1], kind)
        elif kind == DEVICE and slot in _MAKES and not result_code & 0x80000000:
            made, place = _MAKES[slot]
            self.give(arguments[place], made)
        elif kind != DEVICE and slot == _GET_DEVICE:
            self.give(rest[1], DEVICE)
        elif (kind, slot, rest[0] & 0xFFFFFFFF) == (DEVICE, _CHECK_FEATURE, _OPTIONS4):
            answer = ctypes.c_int32.from_address(rest[1] + _NATIVE_16_BIT)
            answer.value |= self._claims_half
        return result_code

    def _translated(self, kind: str, slot: int, rest: list[int]) -> Any:
        """Puts copies without faces in place of structures that hold some; keep the result."""
        if (kind, slot) == (DEVICE, _CREATE_PIPELINE):
            return self._copied(rest, 0, 56, [0])
        if (kind, slot) == (LIST, _BARRIER):
            count = rest[0] & 0xFFFFFFFF
            places = [n * _BARRIER_BYTES + _BARRIER_RESOURCE for n in range(count)]
            return self._copied(rest, 1, count * _BARRIER_BYTES, places)
        if (kind, slot) == (LIST, _SET_HEAPS):
            count = rest[0] & 0xFFFFFFFF
            return self._copied(rest, 1, 8 * count, [8 * n for n in range(count)])
        return None

    def _copied(self, rest: list[int], number: int, size: int, places: Sequence[int]) -> Any:
        copy = ctypes.create_string_buffer(ctypes.string_at(rest[number], size), size)
        for place in places:
            pointer = _WORD.from_address(ctypes.addressof(copy) + place)
            pointer.value = self.behind(pointer.value)
        rest[number] = ctypes.addressof(copy)
        return copy


def call_method(address: int, slot: int, *arguments: int) -> int:
    """Call a method of an object of libvkd3d."""
    table = ctypes.c_void_p.from_address(address).value
    assert table is not None
    return call_function(_WORD.from_address(table + 8 * slot).value, *arguments)


def call_function(target: int, *arguments: int) -> int:
    """Call a function that follows Windows' convention."""
    function = Abi.MS.function(target, _WORD, (_WORD,) * len(arguments))
    result: int = function(*arguments)
    return result
