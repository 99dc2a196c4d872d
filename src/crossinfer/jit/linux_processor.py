"""What Linux says of the processor."""

from __future__ import annotations

import functools
from collections.abc import Mapping

_LONGEST = 1 << 13


@functools.cache
def first_core() -> Mapping[str, str]:
    """The lines of /proc/cpuinfo on its first core, by key; empty where there are none."""
    try:
        # No more of it: the kernel takes long to write the whole for very many cores.
        with open("/proc/cpuinfo", "rb") as file:
            text = file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}
