"""How much memory this process takes, as its operating system tells it."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_bytes() -> int | None:
    """The resident set of this process, touched pages of mapped files included.

    On Linux the size now (VmRSS); on other Unix systems its peak so far, from getrusage; None on
    Windows, where it is not measured.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
