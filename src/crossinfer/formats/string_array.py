"""Arrays of strings in GGUF files, which stay in the mapped file until somebody reads them.

Vocabularies have 150,000 strings, which as Python's take ten times their bytes and tens of
milliseconds. Elements are a uint64 length, little endian, and that many bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from crossinfer.core.dtypes import Array

LENGTH_BYTES = 8
_CHECKED_AT_ONCE = 4096
"""Strings. Of a whole vocabulary it takes twice as long, most of it for new memory."""


class StringArray(Sequence[str]):
    """A sequence of strings over the bytes of a file; each is decoded when it is asked for."""

    def __init__(self, raw: memoryview, ends: Array) -> None:
        """`raw` holds the elements, `ends` where each of them ends in it: integers, ascending.

        Raises UnicodeDecodeError, with the index of the element as its `start`.
        """
        self.raw = raw
        """The elements as the file has them, lengths included."""
        self._ends = ends.astype(np.uint32 if raw.nbytes < 1 << 32 else np.uint64)
        self._check()

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} strings, none of index {index}")
        return str(self._element(index), "utf-8")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return self.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(self.tolist())

    def tolist(self) -> list[str]:
        """All strings, decoded at once."""
        if not len(self):
            return []
        apart = self._with_zeros_for_lengths()
        if np.count_nonzero(apart) + LENGTH_BYTES * len(self) != apart.size:
            # A string holds a zero itself.
            return [str(self._element(i), "utf-8") for i in range(len(self))]
        return str(apart.data, "utf-8").split("\0" * LENGTH_BYTES)[1:]

    def _check(self) -> None:
        if not len(self):
            return
        apart, start = self._with_zeros_for_lengths().data, 0
        for end in (*self._ends[_CHECKED_AT_ONCE::_CHECKED_AT_ONCE].tolist(), apart.nbytes):
            try:
                str(apart[start:end], "utf-8")
            except UnicodeDecodeError as error:
                at = start + error.start
                error.start = int(np.searchsorted(self._ends, at, side="right"))
                raise
            start = end

    def _with_zeros_for_lengths(self) -> Array:
        """A copy of the bytes whose lengths are zeros, which end a character and are text."""
        apart = np.array(self.raw, dtype=np.uint8)
        begins = self._begins()
        longest = int((self._ends - begins).max())
        for byte in range((longest.bit_length() + 7) // 8):
            apart[begins + byte] = 0
        return apart

    def _begins(self) -> Array:
        begins = np.empty_like(self._ends)
        begins[0], begins[1:] = 0, self._ends[:-1]
        return begins

    def _element(self, index: int) -> memoryview:
        start = int(self._ends[index - 1]) if index else 0
        return self.raw[start + LENGTH_BYTES : int(self._ends[index])]
