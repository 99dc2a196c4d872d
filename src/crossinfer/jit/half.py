"""float16 by integer arithmetic, for processors without instructions for it.

Compilers call a runtime library there, which a kernel has not got. Every value converts as the
instructions would convert it: subnormals, infinities and NaN included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossinfer.jit.types import f16, f32, u16, u32

if TYPE_CHECKING:
    from crossinfer.jit.value import Value

_SIGN = 0x8000_0000
_INFINITY = 0x7F80_0000
_QUIET = 0x0040_0000


def widen(half: Value) -> Value:
    """f16 → f32, exactly.

    With exponent and fraction moved to their places in f32, the value is too small by 2¹¹² for
    normal and subnormal numbers alike, so that one multiplication corrects both.
    """
    bits = half.bits_as(u16).to(u32)
    magnitude = (bits & 0x7FFF) << 13
    finite = (magnitude.bits_as(f32) * 2.0**112).bits_as(u32)
    special = magnitude | _INFINITY
    special = (magnitude > 0x0F80_0000).select(special | _QUIET, special)
    result = (magnitude >= 0x0F80_0000).select(special, finite)
    return (result | ((bits & 0x8000) << 16)).bits_as(f32)


def narrow(value: Value) -> Value:
    """f32 → f16, to nearest even."""
    all_bits = value.bits_as(u32)
    sign = all_bits & _SIGN
    bits = all_bits ^ sign

    # Adding a number whose last bit weighs as much as a subnormal f16's rounds to that bit.
    magic = 0x3F00_0000
    shifted = bits.bits_as(f32) + 0.5
    subnormal = shifted.bits_as(u32) - magic

    odd = (bits >> 13) & 1
    rebias = (15 - 127) << 23
    normal = (bits + ((rebias + 0xFFF) & 0xFFFF_FFFF) + odd) >> 13

    nan = ((bits >> 13) & 0x3FF) | 0x7E00
    special = (bits > _INFINITY).select(nan, 0x7C00)
    result = (bits < (113 << 23)).select(subnormal, normal)
    result = (bits >= ((127 + 16) << 23)).select(special, result)
    return (result | (sign >> 16)).to(u16).bits_as(f16)
