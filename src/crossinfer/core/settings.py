"""Environment variables: one typed table, read once, with errors for bad values.

`crossinfer devices --settings` prints the table. A variable that is not in it has no effect, and
one whose name starts like ours but is unknown is an error, since it is usually a misspelling.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.errors import SettingsError
from crossinfer.core.records import record

PREFIX = "CROSSINFER_"
PRECISIONS = ("exact", "fast")


@record
class Settings:
    """The settings in force; field names are the variables' names in lower case."""

    cache: Path | None = None
    device: str = "auto"
    threads: int | None = None
    debug: int = 0
    validation: bool = False
    verify: bool = True
    directml: str = "off"
    directml_library: str | None = None
    d3d12_library: str | None = None
    d3d12_abi: str | None = None
    d3d12_dred: bool = False
    python: Path | None = None
    precision: str = "exact"


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


def _precision(text: str) -> str:
    if text not in PRECISIONS:
        raise ValueError
    return text


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _directml(text: str) -> str:
    if text not in ("off", "auto", "on"):
        raise ValueError
    return text


def _abi(text: str) -> str:
    if text not in ("windows", "ms", "sysv"):
        raise ValueError
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


@record
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
    Variable("cache", "a folder", "where models, compiled kernels and verdicts are kept", _path),
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
    Variable(
        "verify", "0 or 1", "0: kernels are used without a look at their results first", _switch
    ),
    Variable(
        "directml",
        "off, auto or on",
        "DirectML's operators on Direct3D 12: never, where no kernel of ours may run, or first",
        _directml,
    ),
    Variable("directml_library", "a file", "the DirectML library to load", _text),
    Variable("d3d12_library", "a file", "the Direct3D 12 library to load", _text),
    Variable("d3d12_abi", "windows, ms or sysv", "the calling convention of that library", _abi),
    Variable(
        "d3d12_dred",
        "0 or 1",
        "1: Direct3D 12 keeps breadcrumbs that tell what ran when a device was removed",
        _switch,
    ),
    Variable(
        "python",
        "a Python executable",
        "the Python whose packages libcrossinfer uses; read by it, not by Python itself",
        _path,
    ),
    Variable(
        "precision",
        "exact or fast",
        "fast: a CPU with bfloat16 instructions may round 16-bit weights and what they multiply",
        _precision,
    ),
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
