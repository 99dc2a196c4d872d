"""What a device can do at most, measured: what every figure of speed is compared with."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Rates of kernels that do one thing only. Of operations, a multiplication and an addition
    count as two.
    """

    read_bytes_per_s: float
    """Reading memory that no cache holds."""
    integer_operations_per_s: float
    """Products of 8-bit integers, added up."""
    float_operations_per_s: float
    """float32."""
