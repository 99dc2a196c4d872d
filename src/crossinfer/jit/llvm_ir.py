"""llvmlite's `ir`, imported when a kernel is built: most starts find all of them compiled."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from llvmlite import ir

    value = globals()[name] = getattr(ir, name)
    return value
