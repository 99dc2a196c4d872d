"""Activations rounded to integers for integer dot products, and what the rounded values mean.

A row is cut into groups, the last of which may be short. In each

    scale = max|x| / 127        q = round(x · (127 / max|x|))        x ≈ scale · q

in float32, to nearest even, so that |x - scale · q| ≤ scale / 2 but for float32's own rounding. A
group with a NaN or an infinity has a scale that is not finite, and so has every result of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record


class Rounding(Protocol):
    """How a kernel rounds an operand before it computes."""

    def round(self, x: Array) -> Array:
        """What values become, in float64."""


LARGEST = 127
SMALLEST = 2.0**-100
"""Groups whose largest magnitude is below count as zero: 127 / max|x| would overflow at last."""


@record
class ActivationBlocks:
    """Signed 8-bit integers with one float32 scale for each group of a row."""

    group_elements: int

    def quantize(self, x: Array) -> tuple[Array, Array]:
        """float32 [T, K] to codes int8 [T, K] and scales float32 [T, groups].

        The codes of a group whose scale is not finite are 0: nothing is defined of them.
        """
        rows, columns = x.shape
        padding = -columns % self.group_elements
        padded = np.pad(x.astype(np.float32), ((0, 0), (0, padding)))
        groups = padded.reshape(rows, -1, self.group_elements)
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(groups), axis=-1)
            usable = np.isfinite(largest) & (largest >= np.float32(SMALLEST))
            scales, inverse = self.factors(largest)
            scales = np.where(largest < np.float32(SMALLEST), 0, scales)
            inverse = np.where(usable, inverse, 0)
            codes = np.where(usable[..., None], np.rint(groups * inverse[..., None]), 0)
        flat = codes.astype(np.int8).reshape(rows, -1)[:, :columns]
        return flat, scales.astype(np.float32)

    def factors(self, largest: Array) -> tuple[Array, Array]:
        """Scales of groups with these largest magnitudes, and what x is multiplied by for its
        codes; float32. Scales of magnitudes that are not finite are not finite either.
        """
        return largest / np.float32(LARGEST), np.float32(LARGEST) / largest

    def round(self, x: Array) -> Array:
        """What float32 [T, K] becomes, in float64."""
        codes, scales = self.quantize(x)
        wide = np.repeat(scales.astype(np.float64), self.group_elements, axis=1)
        with np.errstate(invalid="ignore"):
            return codes * wide[:, : codes.shape[1]]


@record
class ShortFloats:
    """bfloat16: eight bits of significand, to nearest even."""

    def round(self, x: Array) -> Array:
        """What float32 values of any shape become, in float64."""
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16
        nearest = (rounded.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.where(np.isnan(x), x, nearest).astype(np.float64)


SHORT = ShortFloats()
