"""A digest of our own code, by which caches tell whether it is still the code that filled them."""

from __future__ import annotations

import functools
import hashlib
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
        for path in sorted((_ROOT / folder).rglob("*")):
            if path.suffix in _SUFFIXES and "__pycache__" not in path.parts:
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
