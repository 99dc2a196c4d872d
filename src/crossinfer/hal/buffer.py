"""Buffers, and the views through which dispatches see them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossinfer.core.errors import InvalidUse
from crossinfer.core.records import record

if TYPE_CHECKING:
    from crossinfer.formats.blocks import StorageType
    from crossinfer.hal.device import Device

VIEW_ALIGNMENT = 256


class Role(enum.Enum):
    """What a buffer's contents are, which decides their layout on a device."""

    PLAIN = "plain"
    WEIGHT = "weight"
    KV_CACHE = "kv cache"


class Access(enum.Flag):
    """What a dispatch does with a view."""

    READ = enum.auto()
    WRITE = enum.auto()
    READ_WRITE = READ | WRITE


class Buffer:
    """Memory of one device, made by `alloc` and `upload`; `handle` is the backend's."""

    def __init__(self, device: Device, size_in_bytes: int, label: str, handle: object) -> None:
        self.device = device
        self.size_in_bytes = size_in_bytes
        self.label = label
        self.handle = handle
        self.freed = False

    def __repr__(self) -> str:
        return f"Buffer({self.label or 'unnamed'}, {self.size_in_bytes} bytes)"

    def view(self, offset: int = 0, size: int | None = None) -> View:
        """Bytes `offset … offset + size` (default: to the end). Raises InvalidUse."""
        size = self.size_in_bytes - offset if size is None else size
        if offset % VIEW_ALIGNMENT:
            raise InvalidUse(
                f"A view of {self} starts at byte {offset}; offsets are multiples of "
                f"{VIEW_ALIGNMENT}."
            )
        return View(self, offset, size)

    def free(self) -> None:
        """Give the memory back. Raises InvalidUse while a recording in flight refers to it."""
        self.device.free(self)


@record
class View:
    """A range of a buffer, in bytes; never empty. Raises InvalidUse if it leaves the buffer."""

    buffer: Buffer
    offset: int
    size: int

    def __post_init__(self) -> None:
        if self.offset < 0 or self.size < 1 or self.end > self.buffer.size_in_bytes:
            raise InvalidUse(
                f"A view of {self.buffer} takes bytes {self.offset} to {self.end}; "
                "it must take at least one byte, and none outside the buffer."
            )

    @property
    def end(self) -> int:
        return self.offset + self.size

    def overlaps(self, other: View) -> bool:
        return (
            self.buffer is other.buffer
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )


@record
class Binding:
    """A view together with what the dispatch does with it."""

    view: View
    access: Access

    # By identity: operators of a Flag make new members, and recordings ask thousands of times.

    @property
    def reads(self) -> bool:
        return self.access is not Access.WRITE

    @property
    def writes(self) -> bool:
        return self.access is not Access.READ


def check_shape(shape: Sequence[int], dtype: StorageType, label: str) -> None:
    """Raises InvalidUse unless a buffer `label` may hold a tensor like this."""
    if not shape or min(shape) < 1:
        raise InvalidUse(
            f"{label or 'A buffer'} was asked for with the shape {tuple(shape)}; "
            "sizes are at least 1."
        )
    if shape[-1] % dtype.block_elements:
        raise InvalidUse(
            f"{label or 'A buffer'} of {dtype.label} was asked for with rows of {shape[-1]} "
            f"elements; they hold a multiple of {dtype.block_elements}."
        )
