"""Arithmetic beyond operators: fma, exp, minima, and reductions in one fixed order.

None of it calls a library: a kernel has none.
"""

from __future__ import annotations

from collections.abc import Callable

from crossinfer.jit.types import Type, f32, i32
from crossinfer.jit.value import Operand, Value


def fma(a: Value, b: Value, c: Value) -> Value:
    """a · b + c, rounded once where the processor can, else twice."""
    lanes = max(a.type.lanes, b.type.lanes, c.type.lanes)
    a, b, c = (v if v.type.lanes == lanes else v.splat(lanes) for v in (a, b, c))
    if not a.emitter.target.has("fma"):
        return a * b + c
    return a.emitter.intrinsic(f"llvm.fma.{a.type.mangled}", a.type, a, b, c)


def sqrt(a: Value) -> Value:
    """The square root, rounded correctly."""
    return a.emitter.intrinsic(f"llvm.sqrt.{a.type.mangled}", a.type, a)


def absolute(a: Value) -> Value:
    """|a|; of the smallest integer, itself."""
    if a.type.is_float:
        return a.emitter.intrinsic(f"llvm.fabs.{a.type.mangled}", a.type, a)
    return (a < 0).select(-a, a)


def minimum(a: Value, b: Operand) -> Value:
    """The smaller one; `b` if either is NaN."""
    return (a < b).select(a, b)


def maximum(a: Value, b: Operand) -> Value:
    """The larger one; `b` if either is NaN."""
    return (a > b).select(a, b)


def round_to_integer(a: Value) -> Value:
    """f32 with |a| < 2²² → i32, to nearest even.

    Adding 1.5·2²³ leaves the integer in the low bits.
    """
    shifted = a + _ROUND
    return shifted.bits_as(i32) - _ROUND_BITS


def exp(x: Value) -> Value:
    """eˣ of f32, to one and a half units in the last place, NaN and infinities included.

    eˣ = 2ⁿ · eʳ with n = round(x / ln 2), so that |r| ≤ ln(2) / 2; eʳ by a polynomial
    (coefficients: Cephes, `expf`). 2ⁿ is multiplied in two steps, since its ends are no normal
    numbers.
    """
    # Beyond these the result is 0 or infinity anyway. Written so that a NaN stays one.
    x = (x < -104.0).select(-104.0, x)
    x = (x > 89.0).select(89.0, x)
    scalar = x.emitter.constant
    shifted = fma(x, scalar(f32, _LOG2_E), scalar(f32, _ROUND))
    count, n = shifted.bits_as(i32) - _ROUND_BITS, shifted - _ROUND
    r = fma(n, scalar(f32, -_LN2_HIGH), x)
    r = fma(n, scalar(f32, -_LN2_LOW), r)
    p = scalar(f32, _EXP[0])
    for coefficient in _EXP[1:]:
        p = fma(p, r, scalar(f32, coefficient))
    p = fma(p, r * r, r + 1.0)
    half = count >> 1
    return p * _power_of_two(half) * _power_of_two(count - half)


def exp2_of_negative(x: Value) -> Value:
    """2ˣ of f32 x ≤ 0, to two and a half units in the last place; NaN for NaN.

    0 where the result would be no normal number. 2ˣ = 2ⁿ · 2ʳ with n = round(x), so that r is exact
    and |r| ≤ 1/2; 2ʳ by a minimax polynomial of the relative error, 1 at 0.
    """
    x = (x < -126.0).select(-127.0, x)  # whose exponent, all zeros, makes 0 of 1
    shifted = x + _ROUND
    r = x - (shifted - _ROUND)
    scalar = x.emitter.constant
    p = scalar(f32, _EXP2[0])
    for coefficient in _EXP2[1:]:
        p = fma(p, r, scalar(f32, coefficient))
    # The bits above n's, of the constant that rounds, leave the word.
    return (p.bits_as(i32) + (shifted.bits_as(i32) << 23)).bits_as(f32)


def _power_of_two(exponent: Value) -> Value:
    return ((exponent + 127) << 23).bits_as(f32)


_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375  # nine bits: its product with n is exact
_LN2_LOW = -2.12194440e-4
_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP2 = (
    1.3264727e-3,
    9.6715130e-3,
    5.5507336e-2,
    2.4022242e-1,
    6.9314700e-1,
    1.0,
)
_ROUND = 1.5 * 2**23
_ROUND_BITS = 0x4B40_0000


def reduce(vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """All lanes combined into one scalar: the upper half with the lower half, and so on."""
    while vector.type.lanes > 1:
        half = vector.type.lanes // 2
        vector = combine(vector.part(0, half), vector.part(half, half))
    return vector


def reduce_add(vector: Value) -> Value:
    """The sum of the lanes, always in the same order."""
    return reduce(vector, lambda a, b: a + b)


def reduce_max(vector: Value) -> Value:
    return reduce(vector, maximum)


def reduce_min(vector: Value) -> Value:
    return reduce(vector, minimum)


def concatenate(parts: list[Value]) -> Value:
    """Vectors of equal type, one after another; as many as a power of two."""
    while len(parts) > 1:
        lanes = parts[0].type.lanes * 2
        parts = [_join(low, high, lanes) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _join(low: Value, high: Value, lanes: int) -> Value:
    if lanes == 2:
        return low.splat(2).with_lane(1, high)
    return low.shuffle(range(lanes), high)


def any_lane(mask: Value) -> Value:
    """Whether some lane of a vector of i1 is set."""
    return mask.bits_as(Type("u", mask.type.lanes)) != 0
