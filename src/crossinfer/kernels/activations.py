"""How integer dot products round x: `hlsl/round_columns.hlsli` in NumPy."""

from __future__ import annotations

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.records import record
from crossinfer.formats.activations import ActivationBlocks

DIVIDEND = np.float32(126.5)
"""Below 127 by more than the two roundings may add: codes stay within -127 … 127."""
_LARGEST_BITS = np.uint32(0xFFFF8000)
_HALF_UNIT, _INVERSE_BITS = np.uint32(0x1000), np.uint32(0xFFFFE000)


@record
class SteadyBlocks(ActivationBlocks):
    """As `ActivationBlocks`, with a scale that is the same on devices that divide differently.

    Of a group's largest magnitude 8 bits behind the first count, and 10 of the quotient:

        inverse = nearest(126.5 / truncated(max|x|))
        scale = 1 / inverse        q = round(x · inverse)

    No quotient of these lies within 100 units of float32's last place of where `nearest` jumps,
    and APIs promise divisions that are right to 2.5.
    """

    def factors(self, largest: Array) -> tuple[Array, Array]:
        inverse = inverse_scales(largest)
        return 1 / inverse, inverse


def inverse_scales(largest: Array) -> Array:
    """The inverse scales of groups with these magnitudes, float32."""
    truncated = (largest.view(np.uint32) & _LARGEST_BITS).view(np.float32)
    quotients = (DIVIDEND / truncated).view(np.uint32)
    return ((quotients + _HALF_UNIT) & _INVERSE_BITS).view(np.float32)


ROUNDING = SteadyBlocks(16)
"""That of the kernels: the columns of a lane have one scale."""
