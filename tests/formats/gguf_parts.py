"""Builds GGUF files part by part, so that any one of them can be wrong."""

from __future__ import annotations

import dataclasses
import struct

U32, STRING, ARRAY, BOOL = 4, 8, 9, 7


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, value: bytes) -> bytes:
    return text(name) + value


def tensor(
    name: bytes = b"w", shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0
) -> bytes:
    """A description; `shape` is innermost first, as the file has it."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


@dataclasses.dataclass
class Parts:
    """The parts of a file, valid as they are."""

    magic: bytes = b"GGUF"
    version: int = 3
    keys: tuple[bytes, ...] = ()
    tensors: tuple[bytes, ...] = (tensor(),)
    data: bytes = bytes(32)
    tensor_count: int | None = None
    key_count: int | None = None
    alignment: int = 32

    def build(self) -> bytes:
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.keys) if self.key_count is None else self.key_count,
        )
        header = self.magic + struct.pack("<IQQ", self.version, *counts)
        header += b"".join(self.keys) + b"".join(self.tensors)
        return header + bytes(-len(header) % self.alignment) + self.data


def alignment_key(value: bytes) -> tuple[bytes, ...]:
    return (key(b"general.alignment", value),)


def array(element: int, count: int, payload: bytes) -> tuple[bytes, ...]:
    return (key(b"some.list", struct.pack("<IIQ", ARRAY, element, count) + payload),)
