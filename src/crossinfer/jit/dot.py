"""dot4: sums of four products of bytes, the heart of integer matrix products.

    result[l] = acc[l] + Σ_{j<4} a[4l + j] · b[4l + j]      a unsigned, b signed, exact

One instruction with VNNI and i8mm, two with the dot-product extension of NEON, and multiplications
of 16-bit numbers elsewhere. The order of the sum doesn't matter, since nothing is rounded.
"""

from __future__ import annotations

from crossinfer.jit.arithmetic import concatenate
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
        starts = range(0, lanes, register)
        return concatenate(
            [
                dot4(
                    acc.part(start, register),
                    a.part(4 * start, 4 * register),
                    b.part(4 * start, 4 * register),
                    a_bits,
                )
                for start in starts
            ]
        )
    target = acc.emitter.target
    if not target.is_x86:
        return _neon(acc, a, b, a_bits)
    if target.has("avx512vnni") or target.has("avxvnni"):
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return acc.emitter.intrinsic(name, acc.type, acc, a.bits_as(i32), b.bits_as(i32))
    if a_bits <= 7 and target.has("ssse3"):
        return acc + _multiply_add_bytes(a, b)
    return acc + _multiply_add_pairs(a, b)


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
