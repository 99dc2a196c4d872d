"""Typed reads of a model's description, with errors that name file and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossinfer.core.errors import FormatError, shown

_LARGEST = 2.0**63
"""In magnitude; beyond are counts that overflow, and infinity."""


class Keys:
    """A mapping of untrusted values; `prefix` is put before each key."""

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.values = values
        self.where = where
        self._prefix = prefix

    def get(self, key: str) -> Any:
        """The value as it is; None if it is missing or null."""
        return self.values.get(self._prefix + key)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number. Raises FormatError if it is missing without a default, or not one."""
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise FormatError(f"{self.where}: {self._prefix}{key} is missing.")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) <= _LARGEST
        ):
            raise FormatError(f"{self.where}: {self._prefix}{key} is {shown(value)}, not a number.")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; raises as `number`."""
        value = self.number(key, default)
        if value != int(value):
            raise FormatError(f"{self.where}: {self._prefix}{key} is {value}, not a whole number.")
        return int(value)

    def positive(self, key: str) -> float:
        """A number above zero; raises as `number`."""
        value = self.number(key)
        if value <= 0:
            raise FormatError(f"{self.where}: {self._prefix}{key} is {value}; it is positive.")
        return value

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text; raises FormatError if it is something else."""
        value = self.get(key)
        value = default if value is None else value
        if value is not None and not isinstance(value, str):
            raise FormatError(f"{self.where}: {self._prefix}{key} is {shown(value)}, not a text.")
        return value

    def flag(self, key: str) -> bool:
        """True or false, false if it is missing; raises FormatError if it is something else."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise FormatError(
                f"{self.where}: {self._prefix}{key} is {shown(value)}, neither true nor false."
            )
        return bool(value)
