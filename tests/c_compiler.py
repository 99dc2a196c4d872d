"""The C compiler for tests of the C interface, or a skip that says what is missing."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PACKAGES = "on Debian: apt-get install gcc g++ libc6-dev python3-dev"


def compiler_or_skip(name: str = "cc") -> str:
    """The path of `cc` or `c++`."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"There is no C compiler called {name} ({PACKAGES}).")
    return found


def compile_program(source: Path, target: Path, *flags: str) -> Path:
    """Compile a C99 program without a warning."""
    command = [compiler_or_skip(), "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall",
               "-Wextra", "-Werror", str(source), "-o", str(target), *flags]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@functools.cache
def missing_for_embedding() -> str | None:
    """Why this Python cannot be embedded, if it cannot."""
    if shutil.which("cc") is None:
        return f"There is no C compiler ({PACKAGES})."
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return f"The headers of {sys.executable} are not there ({PACKAGES})."
    folder, name = sysconfig.get_config_vars("LIBDIR", "LDLIBRARY")
    if ".so" not in str(name) or not Path(str(folder), str(name)).exists():
        return f"{sys.executable} has no shared library that could be embedded ({PACKAGES})."
    return None
