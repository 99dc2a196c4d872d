"""Random changes to model files that know their structure."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

INTEGERS = (
    0, 1, 2, 3, 7, 8, 31, 32, 33, 48, 64, 127, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 16, 1 << 20,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 60, 1 << 62, (1 << 63) - 1,
    1 << 63, (1 << 64) - 32, (1 << 64) - 1,
)  # fmt: skip
_JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, float("nan"), float("inf"), 1 << 31, 1 << 63,
    1 << 70, 10**400, "", "x", "\0", "\ud800", "../x", [], {}, [[]], [1] * 9, {"": None}, "llama",
    "linear", "yarn", "llama3", "F32", "BF16", "I32",
)  # fmt: skip
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class GGUFFields:
    """Where the fields of a sound GGUF file are: (begin, size) of each, and whole entries."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0
        self.fields: list[tuple[int, int]] = []
        self.entries: list[tuple[int, int]] = []
        self._field(4)
        self._field(4)
        tensors, keys = self._field(8), self._field(8)
        for _ in range(keys):
            start = self.at
            self._string()
            self._value(self._field(4))
            self.entries.append((start, self.at))
        for _ in range(tensors):
            start = self.at
            self._string()
            for _ in range(self._field(4)):
                self._field(8)
            self._field(4)
            self._field(8)
            self.entries.append((start, self.at))
        self.header_bytes = self.at

    def _field(self, size: int) -> int:
        self.fields.append((self.at, size))
        value = int.from_bytes(self.raw[self.at : self.at + size], "little")
        self.at += size
        return value

    def _string(self) -> None:
        size = self._field(8)
        self.at += size

    def _value(self, kind: int) -> None:
        if kind == 8:
            self._string()
        elif kind == 9:
            element, count = self._field(4), self._field(8)
            for number in range(count):
                if element == 8:
                    self._string()
                elif number < 3:
                    self._field(_SIZES[element])
                else:
                    self.at += _SIZES[element]
        else:
            self._field(_SIZES[kind])


def mutate_gguf(raw: bytes, random_: random.Random) -> bytes:
    """The file with one to three changes in its header, or cut, or longer."""
    fields = GGUFFields(raw)
    result = bytearray(raw)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        match random_.randrange(9):
            case 0 | 1 | 2:  # a field gets an interesting value
                begin, size = random_.choice(fields.fields)
                value = random_.choice(INTEGERS) % (1 << 8 * size)
                result[begin : begin + size] = value.to_bytes(size, "little")
            case 3:  # a field is off by a little
                begin, size = random_.choice(fields.fields)
                value = int.from_bytes(result[begin : begin + size], "little")
                changed = (value + random_.choice((-1, 1, -32, 32, 8))) % (1 << 8 * size)
                result[begin : begin + size] = changed.to_bytes(size, "little")
            case 4:  # a field gets another's value
                (begin, size), (other, _) = random_.sample(fields.fields, 2)
                result[begin : begin + size] = raw[other : other + size].ljust(size, b"\0")
            case 5:  # an entry takes the place of another, or is left out, or put in twice
                (begin, end), (first, last) = random_.sample(fields.entries, 2)
                put = random_.choice((raw[first:last], b"", raw[begin:end] * 2))
                return _aligned(bytes(result[:begin]) + put, raw, end, fields.header_bytes)
            case 6:  # bytes of text or of anything else
                at = random_.randrange(fields.header_bytes)
                result[at : at + 4] = random_.randbytes(random_.randrange(1, 5))[:4].ljust(
                    4, b"\xff"
                )
            case 7:
                result = result[: random_.randrange(len(result))]
                break
            case 8:
                result += random_.choice((b"\0", bytes(32), raw[:64], raw))
                break
    return bytes(result)


def _aligned(start: bytes, raw: bytes, end: int, header_bytes: int) -> bytes:
    """The header with another beginning, then the weights where they belong."""
    header = start + raw[end:header_bytes]
    return header + bytes(-len(header) % 32) + raw[header_bytes + -header_bytes % 32 :]


def mutate_json(value: Any, random_: random.Random) -> str:
    """A JSON text with one to three nodes changed."""
    value = json.loads(json.dumps(value))
    for _ in range(random_.choice((1, 1, 2, 3))):
        holders = [holder for holder in _holders(value) if holder]
        if not holders:
            break
        holder = random_.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = random_.choice(keys)
        match random_.randrange(5):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(random_.choice(_JSON_VALUES))
            case 3:
                del holder[key]
            case 4:
                other = random_.choice(keys)
                holder[key] = json.loads(json.dumps(holder[other]))
    text = json.dumps(value)
    match random_.randrange(12):
        case 0:
            at = random_.randrange(len(text) + 1)
            return text[:at] + random_.choice(('"', "{", "[", "}", ",", ":", "1e999", "\\u0000"))
        case 1:  # every key twice
            return text.replace("{", '{"a": 1, "a": 2, ', 1)
        case 2:
            return text[: random_.randrange(len(text) + 1)]
    return text


def _holders(value: Any) -> list[Any]:
    """All objects and lists in `value`, itself included."""
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(holder for item in inner for holder in _holders(item))]


def mutate_safetensors(raw: bytes, random_: random.Random) -> bytes:
    """The file with a changed header, whose length is told rightly most of the time."""
    size = int.from_bytes(raw[:8], "little")
    text = mutate_json(json.loads(raw[8 : 8 + size]), random_).encode("utf-8", "surrogatepass")
    told = random_.choice(INTEGERS) if random_.random() < 0.1 else len(text)
    result = struct.pack("<Q", told % (1 << 64)) + text + raw[8 + size :]
    if random_.random() < 0.1:
        result = result[: random_.randrange(len(result))]
    return result
