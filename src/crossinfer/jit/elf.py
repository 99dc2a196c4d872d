"""Links a compiled object (ELF, x86-64) into an image that runs wherever it is put.

Only what kernels' objects hold is known: code, read-only data, relocations relative to the place,
and calls of a few functions of the C library. Everything else, damage included, is LinkError,
and is left to LLVM's linker. Sources: System V ABI, chapter 4 (object files), and its supplement
for AMD64, 4.4 (relocations).

The image is code, one stub for each function that is called outside, and from the next page on the
data. All references are between parts of the image, but for the addresses in the stubs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crossinfer.core.records import record
from crossinfer.core.shapes import align_up

PAGE = 4096
"""Code and data are protected apart, so they share no page."""
EXTERNAL = frozenset({"clock_gettime", "sched_yield", "syscall"})
"""The C library's functions that objects may call."""

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE, _X86_64 = 1, 62

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELA = range(5)
_ALLOC, _EXECUTE = 0x2, 0x4
# Merging and strings (0x10, 0x20) are leave to share constants, which need not be taken.
_DATA_FLAGS = _ALLOC | 0x10 | 0x20
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00
_PC32, _PLT32 = 2, 4

_STUB = b"\xff\x25\x00\x00\x00\x00"  # jmp *0(%rip): to the address behind it
_STUB_BYTES = 16
_MOST_BYTES = 1 << 26


class LinkError(Exception):
    """An object that is damaged, or has something that kernels' objects don't."""


@record
class Image:
    """Linked code and data. Everything before `code_bytes`, whole pages, is code."""

    data: bytes
    code_bytes: int
    symbols: dict[str, int]
    """Where each function that the object defines starts."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


def link(code: bytes, address_of: Callable[[str], int]) -> Image:
    """The image of an object; `address_of` finds the functions in `EXTERNAL`.

    Raises LinkError.
    """
    return _Linker(code, address_of).link()


class _Linker:
    def __init__(self, code: bytes, address_of: Callable[[str], int]) -> None:
        self._code = code
        self._address_of = address_of
        self._sections = _read_sections(code)
        self._symbols, self._names = self._read_symbols()
        self._places: dict[int, int] = {}
        """Where each section that is loaded starts in the image."""
        self._stubs: dict[str, int] = {}
        self._image = bytearray()

    def link(self) -> Image:
        loaded = [n for n, section in enumerate(self._sections) if section.flags & _ALLOC]
        for number in loaded:
            if self._is_code(number):
                self._place(number)
        self._make_stubs()
        code_bytes = align_up(len(self._image), PAGE)
        self._grow(code_bytes)
        for number in loaded:
            if not self._is_code(number):
                self._place(number)
        for section in self._sections:
            if section.kind == _RELA:
                self._relocate(section)
        return Image(bytes(self._image), code_bytes, self._functions())

    def _read_symbols(self) -> tuple[list[_Symbol], _Section]:
        tables = [section for section in self._sections if section.kind == _SYMTAB]
        if len(tables) != 1 or tables[0].entry_bytes != _SYMBOL.size:
            raise LinkError("it has not one table of symbols")
        names = self._section(tables[0].link)
        if names.kind != _STRTAB:
            raise LinkError("its symbols have no names")
        return [_Symbol(*entry) for entry in self._entries(tables[0], _SYMBOL)], names

    def _section(self, number: int) -> _Section:
        if number >= len(self._sections):
            raise LinkError(f"it refers to a section {number}")
        return self._sections[number]

    def _entries(self, section: _Section, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
        if section.size % kind.size:
            raise LinkError("a table is cut short")
        return kind.iter_unpack(self._bytes(section))

    def _bytes(self, section: _Section) -> bytes:
        return self._code[section.offset : section.offset + section.size]

    def _is_code(self, number: int) -> bool:
        return bool(self._sections[number].flags & _EXECUTE)

    def _place(self, number: int) -> None:
        section = self._sections[number]
        is_known = section.flags == _ALLOC | _EXECUTE or not section.flags & ~_DATA_FLAGS
        if section.kind != _PROGBITS or not is_known:
            raise LinkError(f"a section has type {section.kind}, flags {section.flags:#x}")
        if section.alignment > PAGE or section.alignment & (section.alignment - 1):
            raise LinkError(f"a section is aligned to {section.alignment}")
        self._places[number] = align_up(len(self._image), max(section.alignment, 1))
        self._grow(self._places[number])
        self._image += self._bytes(section)

    def _grow(self, size: int) -> None:
        if size > _MOST_BYTES:
            raise LinkError(f"it needs {size} bytes")
        self._image += bytes(size - len(self._image))

    def _make_stubs(self) -> None:
        for symbol in self._symbols[1:]:
            if symbol.section == _UNDEFINED:
                name = self._name(symbol)
                if name not in EXTERNAL:
                    raise LinkError(f"it needs {name}")
                self._stubs[name] = align_up(len(self._image), _STUB_BYTES)
                self._grow(self._stubs[name])
                self._image += _STUB + struct.pack("<Q", self._address_of(name))

    def _name(self, symbol: _Symbol) -> str:
        names = self._bytes(self._names)
        end = names.find(b"\0", symbol.name)
        if end < 0:
            raise LinkError("a name is cut short")
        return names[symbol.name : end].decode("ascii", "replace")

    def _relocate(self, section: _Section) -> None:
        target = self._section(section.info)
        place = self._places.get(section.info)
        if place is None or section.entry_bytes != _RELOCATION.size:
            raise LinkError("it relocates what is not loaded")
        for offset, info, addend in self._entries(section, _RELOCATION):
            if offset + 4 > target.size:
                raise LinkError("a relocation is outside of its section")
            at = place + offset
            value = self._goal(info >> 32, info & 0xFFFF_FFFF) + addend - at
            if not -(1 << 31) <= value < 1 << 31:
                raise LinkError("a relocation does not fit")
            struct.pack_into("<i", self._image, at, value)

    def _goal(self, number: int, kind: int) -> int:
        """What a relocation refers to, as a place in the image."""
        if kind not in (_PC32, _PLT32):
            raise LinkError(f"a relocation has type {kind}")
        if not 0 < number < len(self._symbols):
            raise LinkError(f"it refers to a symbol {number}")
        symbol = self._symbols[number]
        if symbol.section == _UNDEFINED:
            if kind != _PLT32:
                raise LinkError("it takes the address of what it does not define")
            return self._stubs[self._name(symbol)]
        return self._defined(symbol)

    def _defined(self, symbol: _Symbol) -> int:
        place = self._places.get(symbol.section)
        if place is None or symbol.value > self._sections[symbol.section].size:
            raise LinkError("a symbol is in no section that is loaded")
        return place + symbol.value

    def _functions(self) -> dict[str, int]:
        return {
            self._name(symbol): self._defined(symbol)
            for symbol in self._symbols[1:]
            if _UNDEFINED < symbol.section < _FIRST_RESERVED
            and self._section(symbol.section).flags & _EXECUTE
            and symbol.name
        }


def _read_sections(code: bytes) -> list[_Section]:
    if len(code) < _FILE_HEADER.size:
        raise LinkError("it is cut short")
    header = _FILE_HEADER.unpack_from(code)
    identity, kind, machine = header[:3]
    table, entry_bytes, count = header[6], header[11], header[12]
    if not identity.startswith(_IDENTITY) or (kind, machine) != (_RELOCATABLE, _X86_64):
        raise LinkError("it is no relocatable object for x86-64")
    if entry_bytes != _SECTION.size or table + count * entry_bytes > len(code):
        raise LinkError("its sections are cut short")
    end = table + count * entry_bytes
    sections = [_Section(*entry) for entry in _SECTION.iter_unpack(code[table:end])]
    for section in sections:
        if not _NULL <= section.kind <= _RELA:
            raise LinkError(f"a section has type {section.kind}")
        if section.offset + section.size > len(code):
            raise LinkError("a section is cut short")
    return sections
