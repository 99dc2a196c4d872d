"""What is known of an adapter before it is opened."""

from __future__ import annotations

import dataclasses

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.constants import FeatureLevel
from crossinfer.hal.info import DeviceKind


@dataclasses.dataclass(frozen=True)
class Adapter:
    """An adapter that Direct3D 12 can open."""

    key: str
    """Tells it from the others of this machine, as long as the process lives."""
    kind: DeviceKind
    description: str
    driver: str
    vendor_id: int | None
    product_id: int | None
    memory_bytes: int | None
    handle: ComObject | None
    """What `D3D12CreateDevice` takes; None for the default adapter."""
    level: FeatureLevel = FeatureLevel.LEVEL_11_0
    most_view_bytes: int | None = None
    """What a view may show, where that is less than shaders can count."""

    @property
    def computes_only(self) -> bool:
        """It draws nothing, so that only DXCore lists it."""
        return self.level is FeatureLevel.CORE_1_0


def driver_name(version: int, vendor: int, product: int) -> str:
    """A version of four numbers in 64 bits, as Windows writes it, with the device's PCI ids."""
    numbers = ".".join(str(version >> shift & 0xFFFF) for shift in (48, 32, 16, 0))
    return f"driver {numbers} [{vendor:04x}:{product:04x}]"


def luid_key(low: int, high: int) -> str:
    """The key of an adapter with this LUID."""
    return f"luid {high & 0xFFFFFFFF:08x}-{low:08x}"
