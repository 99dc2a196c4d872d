"""Who a device is, and what kind of device."""

from __future__ import annotations

import dataclasses
import enum


class DeviceKind(enum.Enum):
    """What a device is, in the order in which `auto` prefers them."""

    DISCRETE_GPU = "discrete GPU"
    INTEGRATED_GPU = "integrated GPU"
    CPU = "CPU"
    REFERENCE = "reference"
    NPU = "NPU"
    SOFTWARE_GPU = "software GPU"
    SIMULATED = "simulated"


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """Who a device is. `name` selects it (`vulkan:1`); verdicts go by name and driver."""

    name: str
    kind: DeviceKind
    description: str
    driver: str
    memory_bytes: int | None = None
    """Memory that weights, KV cache and activations may take; None: the host's."""
