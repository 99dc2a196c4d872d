"""Reads of a SPIR-V module what a pipeline must know of it."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Iterator

_MAGIC = 0x07230203
_WORKGROUP, _PUSH_CONSTANT = 4, 9
"""Storage classes."""


class Op(enum.IntEnum):
    """The instructions that matter here."""

    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_ARRAY = 28
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    CONSTANT = 43
    VARIABLE = 59
    DECORATE = 71


class Word(enum.IntEnum):
    """Operands of theirs."""

    LOCAL_SIZE = 17
    BINDING = 33
    DESCRIPTOR_SET = 34


@dataclasses.dataclass(frozen=True)
class Interface:
    """The outside of a compute shader."""

    version: tuple[int, int]
    capabilities: frozenset[int]
    entry: str
    group_size: tuple[int, int, int]
    bindings: frozenset[tuple[int, int]]
    """(set, binding)"""
    shared_bytes: int
    constant_bytes: int


def read_interface(code: bytes) -> Interface:
    """Raises ValueError if it is no module."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    if words[0] != _MAGIC:
        raise ValueError("this is no SPIR-V module")
    capabilities: set[int] = set()
    entry, group_size = "", (0, 0, 0)
    sets: dict[int, int] = {}
    bindings: dict[int, int] = {}
    constants: dict[int, int] = {}
    sizes: dict[int, int] = {}
    pointed: dict[int, int] = {}
    held = {_WORKGROUP: 0, _PUSH_CONSTANT: 0}
    for op, operands in _instructions(words):
        match op, operands:
            case Op.CAPABILITY, (capability,):
                capabilities.add(capability)
            case Op.ENTRY_POINT, (_, _, *rest):
                entry = struct.pack(f"<{len(rest)}I", *rest).split(b"\0")[0].decode()
            case Op.EXECUTION_MODE, (_, Word.LOCAL_SIZE, x, y, z):
                group_size = (x, y, z)
            case Op.DECORATE, (target, Word.BINDING, number):
                bindings[target] = number
            case Op.DECORATE, (target, Word.DESCRIPTOR_SET, number):
                sets[target] = number
            case Op.CONSTANT, (_, result, value, *_):
                constants[result] = value
            case ((Op.TYPE_INT | Op.TYPE_FLOAT), (result, bits, *_)):
                sizes[result] = bits // 8
            case Op.TYPE_VECTOR, (result, part, count):
                sizes[result] = sizes.get(part, 0) * count
            case Op.TYPE_ARRAY, (result, part, count):
                sizes[result] = sizes[part] * constants[count]
            case Op.TYPE_STRUCT, (result, *parts):
                sizes[result] = sum(sizes.get(part, 0) for part in parts)
            case Op.TYPE_POINTER, (result, _, target):
                pointed[result] = target
            case Op.VARIABLE, (kind, _, storage, *_) if storage in held:
                held[storage] += sizes[pointed[kind]]
    return Interface(
        (words[1] >> 16 & 255, words[1] >> 8 & 255),
        frozenset(capabilities),
        entry,
        group_size,
        frozenset((sets[target], bindings[target]) for target in bindings),
        held[_WORKGROUP],
        held[_PUSH_CONSTANT],
    )


def _instructions(words: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    at = 5
    while at < len(words):
        count = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + count]
        at += count
