"""Handles: numbers that C code holds instead of objects."""

from __future__ import annotations

import itertools
import threading
from typing import Generic, TypeVar

from crossinfer.embedding.status import CallError, Status

T = TypeVar("T")

# All kinds share one count, so that a handle of one kind is unknown to the others.
_numbers = itertools.count(1)


class HandleTable(Generic[T]):
    """Objects of one kind by number. Numbers are never used again. Thread-safe."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._objects: dict[int, T] = {}
        self._closed = False

    def add(self, thing: T) -> int:
        """A handle for `thing`. Raises CallError after `close`; `thing` is then the caller's."""
        with self._lock:
            if self._closed:
                raise CallError(Status.SHUT_DOWN, "crossinfer_shutdown was called meanwhile.")
            number = next(_numbers)
            self._objects[number] = thing
            return number

    def find(self, number: int) -> T:
        """Raises CallError for what is no handle of a living object."""
        thing = self._objects.get(number)
        if thing is None:
            raise self._unknown(number)
        return thing

    def remove(self, number: int) -> T:
        """The object, whose handle ends. Raises CallError."""
        with self._lock:
            thing = self._objects.pop(number, None)
        if thing is None:
            raise self._unknown(number)
        return thing

    def close(self) -> list[T]:
        """Every living object; all handles end, and there will be no more."""
        with self._lock:
            self._closed = True
            things = list(self._objects.values())
            self._objects.clear()
        return things

    def _unknown(self, number: int) -> CallError:
        what = f"{number:#x} was released or never was one" if number else "it is null"
        return CallError(Status.INVALID_HANDLE, f"This is no handle of {self._kind}: {what}.")
