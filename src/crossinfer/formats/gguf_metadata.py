"""The metadata of GGUF files: value types, and a reader that trusts no number in the file.

Source: the GGUF specification, `docs/gguf.md` of ggml. Everything is little endian. A string is a
uint64 length and that many bytes of UTF-8; an array is a uint32 element type, a uint64 length and
the elements.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import FormatError, shown
from crossinfer.formats.string_array import StringArray

MetadataValue = str | bool | int | float | StringArray | Array
"""What a key of a file maps to. Arrays of numbers or booleans are one-dimensional NumPy arrays."""

BOOL, STRING, ARRAY = 7, 8, 9

NUMBER_TYPES: Mapping[int, np.dtype[Any]] = {
    number: np.dtype(code)
    for number, code in {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }.items()
}
UINT32 = 4

_U64 = struct.Struct("<Q")

# More than any model has: a hostile file of some gigabytes must not become many times that in
# Python objects.
_MAX_STRINGS = 1 << 20
_MAX_STRING_BYTES = 1 << 28

DOWNLOAD_AGAIN = "the file is damaged or cut short, so download it again"


class Cursor:
    """Reads forward through the bytes of one file; a read past the end is a FormatError."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def fail(self, problem: str) -> NoReturn:
        """Raise FormatError for this file. `problem` is a clause: what, where, what to do."""
        raise FormatError(f"{self.path}: {problem}.")

    def need(self, count: int, size: int, what: object) -> None:
        """Check that `count` things of at least `size` bytes can follow, before any is read.

        Where something is missing, the message names it as str(what) does.
        """
        rest = self.data.nbytes - self.at
        if count * size > rest:
            self.fail(
                f"{what} needs at least {count * size} bytes, but {rest} are left after byte "
                f"{self.at}; {DOWNLOAD_AGAIN}"
            )

    def take(self, size: int, what: object) -> memoryview:
        """The next `size` bytes."""
        self.need(1, size, what)
        start, self.at = self.at, self.at + size
        return self.data[start : self.at]

    def u32(self, what: object) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: object) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def string(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        if length > _MAX_STRING_BYTES:
            self.fail(f"{what} claims {length} bytes of text; {DOWNLOAD_AGAIN}")
        raw = self.take(length, what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not valid UTF-8 ({error.reason}); {DOWNLOAD_AGAIN}")

    def strings(self, count: int, what: str) -> StringArray:
        """`count` strings. Vocabularies have 150,000 of them, so the work for each is small."""
        self.need(count, 8, what)
        if count > _MAX_STRINGS:
            self.fail(f"{what} has {count} strings; at most {_MAX_STRINGS} are supported")
        if count == 0:
            return StringArray(memoryview(b""), np.empty(0, dtype=np.int64))
        ends = self._guess_string_ends(count)
        if ends is None:
            ends = self._string_ends(count, what)
        start, self.at = self.at, int(ends[-1])
        try:
            return StringArray(self.data[start : self.at], ends - start)
        except UnicodeDecodeError as error:
            self.fail(
                f"{what} is not valid UTF-8 near element {error.start} ({error.reason}); "
                f"{DOWNLOAD_AGAIN}"
            )

    def _guess_string_ends(self, count: int) -> Array | None:
        """Where each of the next `count` strings ends, if no string is empty, long or odd.

        A length field below 65536 ends with six zeros, and text has none. Positions found that way
        are right if each string ends where the next begins; otherwise None.
        """
        # In most files the strings are short, and two zeros before a byte that is none tell enough
        # to find them; the other four are looked at where there seems to be a length.
        for bytes_each, zeros in ((20, 2), (32, 6)):
            window = np.frombuffer(self.data[self.at : self.at + bytes_each * count], np.uint8)
            if window.size < 9:
                return None
            begins = np.flatnonzero((window[7:-1] == 0) & (window[8:] != 0))
            for byte in range(8 - zeros, 7):
                begins = begins[window[begins + byte] == 0]
            begins = begins[:count]
            ends = begins + 8 + window[begins] + 256 * window[begins + 1].astype(np.int64)
            if len(begins) < count or begins[0] != 0 or (ends[:-1] != begins[1:]).any():
                continue
            if any(window[begins + byte].any() for byte in range(2, 8 - zeros)):
                return None
            ends += self.at
            return ends if ends[-1] <= self.data.nbytes else None
        return None

    def _string_ends(self, count: int, what: str) -> Array:
        """Where each of the next `count` strings ends."""
        data, at, size = self.data, self.at, self.data.nbytes
        read_length = _U64.unpack_from
        ends: list[int] = []
        append = ends.append
        with contextlib.suppress(struct.error):  # a length field that the end of the file cuts
            for _ in range(count):
                at += 8 + read_length(data, at)[0]
                if at > size:
                    break
                append(at)
        if len(ends) != count:
            self.fail(
                f"element {len(ends)} of {what} goes past the end of the file; {DOWNLOAD_AGAIN}"
            )
        return np.array(ends, dtype=np.int64)


def _booleans(cursor: Cursor, count: int, what: str) -> Array:
    raw = np.frombuffer(cursor.take(count, what), dtype=np.uint8)
    if raw.max(initial=0) > 1:
        cursor.fail(f"{what} holds {raw.max()}, but a boolean is 0 or 1; {DOWNLOAD_AGAIN}")
    return raw.astype(np.bool_)


def _array(cursor: Cursor, what: str) -> MetadataValue:
    element = cursor.u32(f"the element type of {what}")
    count = cursor.u64(f"the length of {what}")
    if element == STRING:
        return cursor.strings(count, what)
    if element == BOOL:
        return _booleans(cursor, count, what)
    if element == ARRAY:
        cursor.fail(f"{what} is an array of arrays, which is not supported")
    if element not in NUMBER_TYPES:
        cursor.fail(f"{what} has elements of the unknown type {element}; {DOWNLOAD_AGAIN}")
    dtype = NUMBER_TYPES[element]
    cursor.need(count, dtype.itemsize, what)
    # A copy, since the file aligns nothing in its metadata.
    return np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype=dtype).copy()


def _value(cursor: Cursor, kind: int, what: str) -> MetadataValue:
    if kind == STRING:
        return cursor.string(what)
    if kind == ARRAY:
        return _array(cursor, what)
    if kind == BOOL:
        return bool(_booleans(cursor, 1, what)[0])
    if kind not in NUMBER_TYPES:
        cursor.fail(f"{what} has the unknown type {kind}; {DOWNLOAD_AGAIN}")
    dtype = NUMBER_TYPES[kind]
    number: int | float = np.frombuffer(cursor.take(dtype.itemsize, what), dtype=dtype)[0].item()
    return number


def read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, MetadataValue], dict[str, int]]:
    """The next `count` keys: their values, and the numbers of the types they are stored as."""
    values: dict[str, MetadataValue] = {}
    kinds: dict[str, int] = {}
    for index in range(count):
        key = cursor.string(f"the name of metadata key {index}")
        what = f"the value of metadata key {shown(key)}"
        if key in values:
            cursor.fail(f"metadata key {shown(key)} is there twice; {DOWNLOAD_AGAIN}")
        kinds[key] = cursor.u32(f"the type of {what}")
        values[key] = _value(cursor, kinds[key], what)
    return values, kinds
