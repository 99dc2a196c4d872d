"""Driver failures that are known: the program ships with them, so that nobody meets them twice.

A row counts on the devices that it describes until this machine has found out that its case passes
(`crossinfer verify` tries, and says which rows are cured there).
"""

from __future__ import annotations

import re

from crossinfer.core.records import record
from crossinfer.hal.info import DeviceInfo


@record
class KnownFailure:
    """One row. What is None holds for all: every vendor, every product, every driver."""

    backend: str
    kernel: str
    """A kernel's name, or what stands before its bracket: `gemm` means `gemm[f16]` as well."""
    reason: str
    shape: str = ""
    """The operands' shapes that fail, as `x 5x64, weight 32x64`; empty: every shape."""
    vendor_id: int | None = None
    product_id: int | None = None
    first_driver: str | None = None
    """The oldest and the newest driver that fail, as dotted numbers."""
    last_driver: str | None = None

    def concerns(self, info: DeviceInfo) -> bool:
        """Whether the row describes this device and driver."""
        if info.backend != self.backend:
            return False
        if self.vendor_id is not None and info.vendor_id != self.vendor_id:
            return False
        if self.product_id is not None and info.product_id != self.product_id:
            return False
        if self.first_driver is None and self.last_driver is None:
            return True
        version = _version(info.driver)
        return (
            version is not None
            and (self.first_driver is None or version >= _numbers(self.first_driver))
            and (self.last_driver is None or version <= _numbers(self.last_driver))
        )

    def names(self, kernel: str) -> bool:
        """Whether the row speaks of this kernel."""
        return kernel == self.kernel or kernel.startswith(self.kernel + "[")


def _version(driver: str) -> tuple[int, ...] | None:
    """The first dotted number in a driver's description."""
    found = re.search(r"\d+(?:\.\d+)+", driver)
    return _numbers(found[0]) if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


KNOWN_FAILURES: tuple[KnownFailure, ...] = (
    # Seen on one GPU, whose vendor and driver were not kept with the report. The operator is one
    # of several ways to run a product, so to leave this shape out everywhere costs next to nothing.
    KnownFailure(
        backend="d3d12",
        kernel="directml_gemm",
        shape="x 5x64, weight 32x64",
        reason="the operator removes the device (0x887A0005, DXGI_ERROR_DEVICE_REMOVED)",
    ),
)
