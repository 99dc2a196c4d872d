"""What a device can do at most, measured: what every figure of speed is compared with."""

from __future__ import annotations

import abc
import enum

from crossinfer.core.records import record


class Products(enum.Enum):
    """The numbers that a matrix product multiplies; sums are 32 bits wide."""

    INTEGER = "8-bit integers"
    SHORT = "bfloat16"
    FLOAT = "float32"


@record
class Limits:
    """Rates of kernels that do one thing only. A multiplication and an addition count as two.

    How fast memory is read changes from moment to moment: see `ReadProbe`.
    """

    integer_operations_per_s: float
    """Products of 8-bit integers, added up."""
    float_operations_per_s: float
    """float32."""
    short_operations_per_s: float | None = None
    """Products of bfloat16, added up in float32; None where the device may not or cannot."""

    def operations_per_s(self, products: Products) -> float | None:
        """The peak of one kind of products."""
        match products:
            case Products.INTEGER:
                return self.integer_operations_per_s
            case Products.SHORT:
                return self.short_operations_per_s
            case Products.FLOAT:
                return self.float_operations_per_s


class ReadProbe(abc.ABC):
    """How fast memory is read just now: on shared machines that changes within seconds."""

    @abc.abstractmethod
    def bytes_per_s(self) -> float:
        """Read memory that no cache holds once, for some milliseconds. Raises DeviceLost."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give the memory back."""
