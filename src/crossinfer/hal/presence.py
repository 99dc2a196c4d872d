"""Whether this machine can have a GPU at all: a look that costs microseconds.

To ask Vulkan loads every driver that is installed, software rasterisers included, which takes a
tenth of a second. On Linux a driver of hardware needs one of a few device nodes.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Direct rendering (all of Mesa, AMD, Intel), NVIDIA's own driver, the GPU of Windows under WSL.
_NODES = ("dri/renderD*", "nvidia[0-9]*", "dxg")


def may_have_gpu(devices: Path = Path("/dev")) -> bool:
    """False if there is certainly no GPU that a driver could reach."""
    if sys.platform != "linux":
        return True
    return any(next(devices.glob(pattern), None) is not None for pattern in _NODES)
