"""The undefined symbols of an object file: what a kernel would need from elsewhere."""

from __future__ import annotations

import struct


def undefined_symbols(code: bytes) -> set[str]:
    """Of an ELF (64 bits, little endian) or COFF object."""
    return _elf(code) if code.startswith(b"\x7fELF") else _coff(code)


def _elf(code: bytes) -> set[str]:
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", code, table + number * size) for number in range(count)
    ]
    names = set()
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        strings = sections[section[6]][4]
        for at in range(section[4] + 24, section[4] + section[5], 24):
            name, _, _, where = struct.unpack_from("<IBBH", code, at)
            if where == 0:
                names.add(_text(code, strings + name))
    return names


def _coff(code: bytes) -> set[str]:
    start, count = struct.unpack_from("<II", code, 8)
    strings = start + 18 * count
    names, number = set(), 0
    while number < count:
        at = start + 18 * number
        short, long, value, where, _, kind, more = struct.unpack_from("<IIIhHBB", code, at)
        if where == 0 and value == 0 and kind == 2:  # IMAGE_SYM_CLASS_EXTERNAL
            names.add(_text(code, strings + long) if short == 0 else _text(code[: at + 8], at))
        number += 1 + more
    return names


def _text(code: bytes, at: int) -> str:
    return code[at:].split(b"\0", 1)[0].decode()
