"""dot4: sums of four products of bytes, the heart of integer matrix products.

    result[l] = acc[l] + Σ_{j<4} a[4l + j] · b[4l + j]      a unsigned, b signed, exact

One instruction with VNNI and i8mm, two with the dot-product extension of NEON, and multiplications
of 16-bit numbers elsewhere. The order of the sum doesn't matter, since nothing is rounded.

`dot4_signed` is the same with both signed, for targets that are faster so where `a` has all of its
eight bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from crossinfer.jit.arithmetic import absolute, concatenate
from crossinfer.jit.target import Target
from crossinfer.jit.types import i8, i16, i32, u8, u16
from crossinfer.jit.value import Value


def dot4(acc: Value, a: Value, b: Value, a_bits: int = 8) -> Value:
    """acc i32[n], a u8[4n], b i8[4n]. `a_bits`: no element of `a` is 2**a_bits or more.

    Seven bits or fewer allow faster code where there is no VNNI.
    """
    lanes = acc.type.lanes
    if (acc.type, a.type, b.type) != (i32.x(lanes), u8.x(4 * lanes), i8.x(4 * lanes)):
        raise TypeError(f"dot4 takes i32, u8 and i8, not {acc.type}, {a.type} and {b.type}")
    register = _register_lanes(acc)
    if register == 0:
        return _plain(acc, a, b)
    if lanes > register:
        return _by_registers(functools.partial(dot4, a_bits=a_bits), acc, a, b, register)
    target = acc.emitter.target
    if not target.is_x86:
        return _neon(acc, a, b, a_bits)
    if target.has("avx512vnni") or target.has("avxvnni"):
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return acc.emitter.intrinsic(name, acc.type, acc, a.bits_as(i32), b.bits_as(i32))
    if a_bits <= 7 and target.has("ssse3"):
        return acc + _multiply_add_bytes(a, b)
    return acc + _multiply_add_pairs(a, b)


def prefers_signed(target: Target) -> bool:
    """Whether `dot4_signed` is faster than `dot4` of eight bits."""
    has_unsigned = target.has("avx512vnni") or target.has("avxvnni")
    return not has_unsigned and (target.has("ssse3") or target.has("dotprod"))


def dot4_signed(acc: Value, a: Value, b: Value) -> Value:
    """acc i32[n], a i8[4n], b i8[4n], of which none is -128. For targets that prefer it."""
    lanes = acc.type.lanes
    if (acc.type, a.type, b.type) != (i32.x(lanes), i8.x(4 * lanes), i8.x(4 * lanes)):
        raise TypeError(f"dot4_signed takes i32, i8 and i8, not {acc.type}, {a.type} and {b.type}")
    target, register = acc.emitter.target, _register_lanes(acc)
    if not prefers_signed(target) or register == 0:
        raise TypeError(f"{lanes} lanes on {target.name} are none for dot4_signed")
    if lanes > register:
        return _by_registers(dot4_signed, acc, a, b, register)
    if not target.is_x86:
        return acc.emitter.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, acc, a, b)
    # The sign of a goes to b: pairs of products of bytes then fit 16 bits (2·128·127).
    return acc + _multiply_add_bytes(absolute(a).bits_as(u8), _with_sign(b, a))


def _with_sign(b: Value, a: Value) -> Value:
    """b where a is positive, -b where it is negative, anything where it is 0: i8[n]."""
    name = {
        128: "llvm.x86.ssse3.psign.b.128",
        256: "llvm.x86.avx2.psign.b",
    }.get(8 * a.type.lanes)
    if name is not None:
        return a.emitter.intrinsic(name, b.type, b, a)
    return (a < 0).select(b._like(0) - b, b)


def _by_registers(
    product: Callable[[Value, Value, Value], Value], acc: Value, a: Value, b: Value, register: int
) -> Value:
    """A product of more lanes than a register has."""
    bytes_ = 4 * register
    return concatenate(
        [
            product(acc.part(start, register), a.part(4 * start, bytes_), b.part(4 * start, bytes_))
            for start in range(0, acc.type.lanes, register)
        ]
    )


def _register_lanes(acc: Value) -> int:
    """Lanes of i32 that one instruction takes; 0 if there is none for these."""
    target, lanes = acc.emitter.target, acc.type.lanes
    if lanes < 4 or not (target.is_x86 or target.has("dotprod")):
        return 0
    return min(lanes, target.vector_bits // 32)


def _multiply_add_bytes(a: Value, b: Value) -> Value:
    """Products of bytes, added in pairs to 16 bits (2·127·128 fits), and then to 32."""
    bits = 8 * a.type.lanes
    name = {
        128: "llvm.x86.ssse3.pmadd.ub.sw.128",
        256: "llvm.x86.avx2.pmadd.ub.sw",
        512: "llvm.x86.avx512.pmaddubs.w.512",
    }[bits]
    pairs = a.emitter.intrinsic(name, i16.x(a.type.lanes // 2), a, b)
    return _multiply_add_words(pairs, pairs._like(1))


def _multiply_add_pairs(a: Value, b: Value) -> Value:
    """Even and odd bytes apart, each widened in place to 16 bits, so that no lane moves."""
    a_pairs, b_pairs = a.bits_as(u16), b.bits_as(i16)
    even = _multiply_add_words((a_pairs & 0xFF).bits_as(i16), (b_pairs << 8) >> 8)
    odd = _multiply_add_words((a_pairs >> 8).bits_as(i16), b_pairs >> 8)
    return even + odd


def _multiply_add_words(a: Value, b: Value) -> Value:
    """i16[2n] → i32[n]: products of neighbours, added."""
    name = {
        128: "llvm.x86.sse2.pmadd.wd",
        256: "llvm.x86.avx2.pmadd.wd",
        512: "llvm.x86.avx512.pmaddw.d.512",
    }[16 * a.type.lanes]
    return a.emitter.intrinsic(name, i32.x(a.type.lanes // 2), a, b)


def _neon(acc: Value, a: Value, b: Value, a_bits: int) -> Value:
    """With both signed: a = (a - 128) + 128, and a - 128 is a with its top bit turned."""
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    if a_bits <= 7:
        return acc.emitter.intrinsic(name, acc.type, acc, a.bits_as(i8), b)
    lowered = (a ^ 0x80).bits_as(i8)
    total = acc.emitter.intrinsic(name, acc.type, acc, lowered, b)
    zero, ones = acc._like(0), b._like(1)
    sums = acc.emitter.intrinsic(name, acc.type, zero, ones, b)
    return total + (sums << 7)


def _plain(acc: Value, a: Value, b: Value) -> Value:
    a_quads, b_quads = a.bits_as(i32), b.bits_as(i32)
    for j in range(4):
        acc = acc + ((a_quads >> (8 * j)) & 0xFF) * ((b_quads << (24 - 8 * j)) >> 24)
    return acc
