"""Environment variables: one typed table, read once, with errors for bad values.

`crossinfer devices --settings` prints the table. A variable that is not in it has no effect, and
one whose name starts like ours but is unknown is an error, since it is usually a misspelling.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.errors import SettingsError

PREFIX = "CROSSINFER_"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings in force; field names are the variables' names in lower case."""

    cache: Path | None = None
    device: str = "auto"
    threads: int | None = None
    debug: int = 0
    validation: bool = False


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _debug_level(text: str) -> int:
    value = int(text)
    if value not in range(4):
        raise ValueError
    return value


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _folder(text: str) -> Path:
    return Path(_text(text))


@dataclasses.dataclass(frozen=True)
class Variable:
    """One row of the table: what a variable is for, what it takes, how it is parsed."""

    field: str
    takes: str
    meaning: str
    parse: Callable[[str], Any]

    @property
    def name(self) -> str:
        return PREFIX + self.field.upper()


VARIABLES = (
    Variable("cache", "a folder", "where models, compiled kernels and verdicts are kept", _folder),
    Variable(
        "device",
        "device names, separated by commas",
        "the devices that `auto` stands for, in order of preference",
        _text,
    ),
    Variable("threads", "an integer ≥ 1", "worker threads of CPU devices", _positive),
    Variable(
        "debug", "0 to 3", "1: the plan, 2: each step, 3: each command, on stderr", _debug_level
    ),
    Variable("validation", "0 or 1", "1: the API's own validation layers, on stderr", _switch),
)


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from `environment` (default: the process's). Raises SettingsError."""
    environment = os.environ if environment is None else environment
    known = {variable.name: variable for variable in VARIABLES}
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX):
            continue
        variable = known.get(name)
        if variable is None:
            raise SettingsError(
                f"The environment variable {name} is not a setting of crossinfer; "
                f"the settings are {', '.join(known)}."
            )
        try:
            values[variable.field] = variable.parse(text)
        except ValueError:
            raise SettingsError(
                f"The environment variable {name} is {text!r}; it takes {variable.takes}."
            ) from None
    return Settings(**values)
