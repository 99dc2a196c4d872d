"""Integer arithmetic on sizes."""

from __future__ import annotations

from collections.abc import Sized


def ceil_div(value: int, divisor: int) -> int:
    """The smallest integer that is at least value / divisor."""
    return -(-value // divisor)


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is at least `value`."""
    return ceil_div(value, alignment) * alignment


def count(things: Sized, noun: str) -> str:
    """`1 tensor`, `3 tensors`."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def format_bytes(size: int) -> str:
    """A size for people: `98.2 MB` (powers of 1000, as disks and model cards count)."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
