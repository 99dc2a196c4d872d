"""COM objects written in Python, for whatever calls them through their tables.

A method that nobody expected to be called, a call on an object that is gone, and an exception in a
method are kept as complaints, since none of them can cross the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from crossinfer.backends.d3d12.com import Interface

_E_FAIL = -0x7FFFBFFB
_SLOTS = 64


_WORLDS: list[World] = []
"""All of them: a reference that is forgotten late calls into an object at any time."""


class World:
    """The objects that live, everything that went wrong, and every call in order."""

    def __init__(self) -> None:
        self.objects: dict[int, FakeObject] = {}
        self.complaints: list[str] = []
        self.calls: list[str] = []
        self.unexpected = [self._unexpected(slot) for slot in range(_SLOTS)]
        _WORLDS.append(self)

    def at(self, address: int) -> FakeObject:
        """The object at an address. Raises KeyError: a wild pointer, or one that is gone."""
        found = self.objects[address]
        if found.references < 1:
            raise KeyError(f"{found} was released")
        return found

    @property
    def alive(self) -> list[FakeObject]:
        return [made for made in self.objects.values() if made.references > 0]

    def _unexpected(self, slot: int) -> Any:
        def run(this: int) -> int:
            self.complaints.append(f"{self.objects.get(this)}: slot {slot} was called")
            return _E_FAIL

        return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(run)


class FakeObject:
    """An object with one reference, which its maker gives away."""

    def __init__(
        self,
        world: World,
        interface: Interface,
        methods: Mapping[str, Callable[..., Any]],
        **facts: Any,
    ) -> None:
        self.world = world
        self.interface = interface
        self.references = 1
        self.facts = facts
        self.on_release: Callable[[], None] = lambda: None
        own = {"AddRef": self._add, "Release": self._release, **methods}
        table = (ctypes.c_void_p * _SLOTS)()
        for slot, callback in enumerate(world.unexpected):
            table[slot] = ctypes.cast(callback, ctypes.c_void_p).value
        self._callbacks: dict[int, Any] = {}
        self._table = table
        self._memory = (ctypes.c_void_p * 1)(ctypes.addressof(table))
        self.address = ctypes.addressof(self._memory)
        world.objects[self.address] = self
        for name, (slot, signature) in interface.methods.items():
            if name in own:
                prototype = ctypes.CFUNCTYPE(
                    signature.returned, ctypes.c_void_p, *signature.arguments
                )
                self._set(slot, prototype(self._guarded(name, own[name])))

    def __repr__(self) -> str:
        return f"<fake {self.interface}>"

    def replace(self, name: str, prototype: Any, function: Callable[..., Any]) -> None:
        """Another signature for one method: `function` gets all of its arguments."""
        slot, _ = self.interface.methods[name]
        self._set(slot, prototype(function))

    def give(self, place: int) -> int:
        """Store the object's address where a caller asked for it."""
        ctypes.c_void_p.from_address(place).value = self.address
        return 0

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        call = f"{self.interface}.{name}"

        def run(_this: int, *arguments: Any) -> Any:
            if name not in ("AddRef", "Release", "GetBindingProperties"):
                self.world.calls.append(call)
            try:
                if self.references < 1:
                    raise AssertionError("it was released")
                return function(*arguments)
            except Exception as error:
                self.world.complaints.append(f"{call}: {error}")
                return _E_FAIL & 0xFFFFFFFF if name in ("AddRef", "Release") else _E_FAIL

        return run

    def _set(self, slot: int, callback: Any) -> None:
        self._callbacks[slot] = callback
        self._table[slot] = ctypes.cast(callback, ctypes.c_void_p).value

    def _add(self) -> int:
        self.references += 1
        return self.references

    def _release(self) -> int:
        self.references -= 1
        if self.references == 0:
            self.on_release()
        return self.references
