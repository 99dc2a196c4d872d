"""COM objects from Python: interfaces as tables, one way to call, references that are counted.

    queue = device.create("CreateCommandQueue", ID3D12CommandQueue, description)
    queue.Signal(fence, 5)
    queue.release()

An `Interface` lists methods by slot. A `ComObject` is one reference: what it holds is released
once, by `release` or when Python forgets it. A method that returns a failure raises `ComError`,
which names the call.
"""

from __future__ import annotations

import ctypes
import functools
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Self

from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.hresult import hresult_name

_KINDS: dict[str, Any] = {
    "b": ctypes.c_bool,
    "p": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "q": ctypes.c_uint64,
    "z": ctypes.c_size_t,
}
_HRESULT = ctypes.c_int32


class ComError(Exception):
    """A call returned a failure. `call` is `ID3D12Device.CreateFence` or a function's name.

    Stays inside this backend.
    """

    def __init__(self, call: str, code: int) -> None:
        self.call = call
        self.code = code & 0xFFFFFFFF
        super().__init__(f"{call} returned {hresult_name(code)}")


class Signature:
    """Argument and result types from their letters.

    p a pointer or object, i and u 32 bits, q 64, z a size, b a bool; `-` at the end: no result,
    `=u`: that one, otherwise an HRESULT.
    """

    def __init__(self, letters: str) -> None:
        words = letters.split()
        last = words[-1] if words else ""
        self.returns_hresult = last != "-" and not last.startswith("=")
        self.returned: Any = _HRESULT
        if not self.returns_hresult:
            self.returned = None if words.pop() == "-" else _KINDS[last[1:]]
        self.arguments = tuple(_KINDS[word] for word in words)


class Interface:
    """An interface of COM: its id, the interface that it extends, and its own methods.

    `methods` has a line for each method that is used: slot, name, letters as in `Signature`.
    """

    def __init__(self, name: str, iid: str, base: Interface | None, methods: str = "") -> None:
        self.name = name
        self.base = base
        self.iid = guid(iid)
        self.methods: dict[str, tuple[int, Signature]] = dict(base.methods) if base else {}
        for line in filter(None, map(str.strip, methods.splitlines())):
            slot, method_name, *letters = line.split()
            self.methods[method_name] = int(slot), Signature(" ".join(letters))

    def __repr__(self) -> str:
        return self.name


def guid(text: str) -> Any:
    """The 16 bytes of an id, as calls take them."""
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text).bytes_le)


IUnknown = Interface(
    "IUnknown",
    "00000000-0000-0000-c000-000000000046",
    None,
    """
    0 QueryInterface p p
    1 AddRef =u
    2 Release =u
    """,
)


def method(address: int, slot: int, signature: Signature, abi: Abi) -> Callable[..., Any]:
    """The method in a slot of the object at `address`, which goes before the arguments."""
    table = ctypes.c_void_p.from_address(address).value
    assert table is not None
    target = ctypes.c_void_p.from_address(table + slot * ctypes.sizeof(ctypes.c_void_p)).value
    assert target is not None
    return functools.partial(_function(target, signature, abi), address)


@functools.lru_cache(maxsize=1024)
def _function(target: int, signature: Signature, abi: Abi) -> Callable[..., Any]:
    """Objects of one class share their functions."""
    made: Callable[..., Any] = abi.function(
        target, signature.returned, (ctypes.c_void_p, *signature.arguments)
    )
    return made


def checked(call: str, function: Callable[..., Any]) -> Callable[..., int]:
    """`function`, which returns an HRESULT; failures are raised as ComError."""

    def run(*arguments: Any) -> int:
        code: int = function(*arguments)
        if code < 0:
            raise ComError(call, code)
        return code

    return run


class References:
    """The references that are held on what one device made, so that its end can release them."""

    def __init__(self) -> None:
        # By identity, and every change is one step: objects are forgotten on any thread, at any
        # moment, so no lock may be held.
        self._held: dict[int, weakref.ref[ComObject]] = {}
        self._kept: list[ComObject] = []

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: ComObject) -> None:
        self._held[id(held)] = weakref.ref(held)

    def remove(self, held: ComObject) -> None:
        self._held.pop(id(held), None)

    def keep(self) -> None:
        """From now on, Python forgets nothing of what is held: only the end releases it."""
        self._kept = self._alive()

    def pin(self) -> None:
        """Somebody may use what is held for ever: it outlives whoever releases it."""
        for held in self._alive():
            held.AddRef()

    def release(self) -> None:
        """Release what is still held, the latest first."""
        for held in self._alive():
            held.release()
        self._kept.clear()

    def abandon(self) -> None:
        """Never release what is held: whoever uses it may not be done with it."""
        for held in self._alive():
            held.detach()
        self._kept.clear()

    def _alive(self) -> list[ComObject]:
        found = [reference() for reference in reversed(list(self._held.values()))]
        return [held for held in found if held is not None]


class ComObject:
    """One reference to an object; its methods are attributes.

    Takes over a reference that the caller has (`adopt` adds one). Raises ComError in methods.
    """

    def __init__(
        self, address: int, interface: Interface, abi: Abi, references: References | None = None
    ) -> None:
        self._reference = [address]
        self.interface = interface
        self.abi = abi
        self.references = References() if references is None else references
        self.references.add(self)

    @classmethod
    def adopt(
        cls, address: int, interface: Interface, abi: Abi, references: References | None = None
    ) -> Self:
        """A new reference to an object that somebody else keeps."""
        adopted = cls(address, interface, abi, references)
        adopted.AddRef()
        return adopted

    def __repr__(self) -> str:
        return f"<{self.interface} {self._reference}>"

    @property
    def address(self) -> int:
        """Raises ValueError once it is released."""
        if not self._reference:
            raise ValueError(f"The {self.interface} was released.")
        return self._reference[0]

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.interface.methods:
            raise AttributeError(f"The table of {self.__dict__.get('interface')} has no {name}.")
        slot, signature = self.interface.methods[name]
        found = method(self.address, slot, signature, self.abi)
        if signature.returns_hresult:
            found = checked(f"{self.interface}.{name}", found)
        self.__dict__[name] = found
        return found

    def create(self, name: str, interface: Interface, *arguments: Any) -> ComObject:
        """Calls a method that ends in (id, pointer to the new object). Raises ComError."""
        made = ctypes.c_void_p()
        getattr(self, name)(*arguments, interface.iid, ctypes.byref(made))
        return ComObject(taken(made), interface, self.abi, self.references)

    def query(self, interface: Interface) -> ComObject | None:
        """The same object through another interface; None if it has no such one."""
        try:
            return self.create("QueryInterface", interface)
        except ComError:
            return None

    def release(self) -> None:
        """Give the reference back; further calls change nothing."""
        try:
            address = self._reference.pop()  # at once, whichever thread comes first
        except IndexError:
            return
        self._forget_methods()
        slot, signature = IUnknown.methods["Release"]
        method(address, slot, signature, self.abi)()

    def detach(self) -> None:
        """Forget the reference without giving it back."""
        self._reference.clear()
        self._forget_methods()

    def __del__(self) -> None:
        if "_reference" in self.__dict__:
            self.release()

    def _forget_methods(self) -> None:
        self.references.remove(self)
        for name in self.interface.methods:
            self.__dict__.pop(name, None)


def taken(made: ctypes.c_void_p) -> int:
    """The address that a successful call stored."""
    assert made.value is not None, "the call said that it succeeded"
    return made.value
