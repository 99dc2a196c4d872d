"""A digest of our own code, by which caches tell whether it is still the code that filled them."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SUFFIXES = (".py", ".pyc", ".hlsl", ".hlsli")  # .pyc where sources are not shipped


@functools.cache
def sources_digest(*folders: str) -> str:
    """SHA-256 in hexadecimal of the Python and HLSL files in folders of this package.

    Folders are relative to it, as `backends/cpu/kernels`; what lies below them counts too.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for name, path in sorted(_sources(_ROOT / folder)):
            with open(path, "rb", buffering=0) as file:
                digest.update(name.encode() + b"\0" + file.read())
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and paths: plain strings, since every start asks for a hundred of them."""
    for inner, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from ((name, os.path.join(inner, name)) for name in names if name.endswith(_SUFFIXES))
