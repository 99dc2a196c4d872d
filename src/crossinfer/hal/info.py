"""Who a device is, and what kind of device."""

from __future__ import annotations

import enum

from crossinfer.core.records import record


class DeviceKind(enum.Enum):
    """What a device is. `hal.registry` says which of them `auto` may take."""

    DISCRETE_GPU = "discrete GPU"
    INTEGRATED_GPU = "integrated GPU"
    CPU = "CPU"
    REFERENCE = "reference"
    NPU = "NPU"
    SOFTWARE_GPU = "software GPU"
    SIMULATED = "simulated"


@record
class DeviceInfo:
    """Who a device is. `name` selects it (`vulkan:1`).

    Verdicts go by name, driver and kernel_code.
    """

    name: str
    kind: DeviceKind
    description: str
    driver: str
    memory_bytes: int | None = None
    """Memory that weights, KV cache and activations may take; None: the host's."""
    vendor_id: int | None = None
    """The PCI vendor, where there is one: known driver failures go by it and by `product_id`."""
    product_id: int | None = None
    kernel_code: str = ""
    """A digest of the code that its kernels are made from: what was found out about the kernels of
    other code tells nothing."""
    step_rows: int = 256
    """Rows of a step that keep it busy. More of them hold running answers up for longer."""

    @property
    def backend(self) -> str:
        """The part of the name before the number."""
        return self.name.partition(":")[0]
