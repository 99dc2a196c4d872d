"""The layouts of the public header (see `make_layouts.py`), and memory read by them."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

LAYOUTS = json.loads((Path(__file__).parent / "layouts.json").read_text())


def constant(name: str) -> int:
    """A constant of the header, without its prefix DML_."""
    value: int = LAYOUTS["constants"][f"DML_{name}"]
    return value


def read(address: int | None, structure: str) -> dict[str, int]:
    """The fields of the structure at `address`, as unsigned numbers. Raises ValueError for null."""
    if not address:
        raise ValueError(f"a pointer to a {structure} is null")
    layout: dict[str, Any] = LAYOUTS["structures"][structure]
    raw = ctypes.string_at(address, layout["size"])
    return {
        name: int.from_bytes(raw[offset : offset + size], "little")
        for name, (offset, size) in layout["fields"].items()
    }


def read_array(address: int, structure: str, count: int) -> list[dict[str, int]]:
    """The fields of `count` structures one after another."""
    size: int = LAYOUTS["structures"][structure]["size"]
    return [read(address + number * size, structure) for number in range(count)]
