"""Kernels that do one thing only, whose rates are a CPU's limits.

`read` adds up memory: a workgroup reads READ_BYTES. `peak` does PEAK_STEPS of each of PEAK_CHAINS
chains in registers, over all lanes of a vector: of dot4, of products of bfloat16 pairs, or of
float32 multiply-adds.
"""

from __future__ import annotations

from crossinfer.hal.limits import Products
from crossinfer.jit.arithmetic import fma, reduce
from crossinfer.jit.builder import KernelBuilder
from crossinfer.jit.dot import dot4
from crossinfer.jit.short_dot import pair_dot
from crossinfer.jit.target import Target
from crossinfer.jit.types import f32, i8, i32, u8, u32
from crossinfer.jit.value import Value

READ_BYTES = 4096
PEAK_STEPS = 1 << 14
PEAK_CHAINS = 12
"""Independent sums: more than an instruction takes cycles times what starts in one cycle."""


_PER_LANE = {Products.INTEGER: 4, Products.SHORT: 2, Products.FLOAT: 1}
"""Products that one instruction adds to a 32-bit lane."""


def peak_operations(target: Target, products: Products) -> int:
    """Operations of one workgroup of `build_peak`."""
    return 2 * target.lanes() * _PER_LANE[products] * PEAK_CHAINS * PEAK_STEPS


def build_read(target: Target, symbol: str) -> str:
    """Views: data i32 (read), out i32[1] (written, hardly ever)."""
    k = KernelBuilder(symbol, target)
    data, out = k.views(i32, i32)
    words = READ_BYTES // 4
    lanes = target.lanes()
    with k.workgroups() as group:
        total = k.variable(i32.x(lanes))
        with k.range(0, words, 4 * lanes) as at:
            for step in range(4):
                total.set(total.value ^ data.vector(group * words + at + step * lanes, lanes))
        # Every lane counts, or LLVM would read one element of each vector.
        found = reduce(total.value, lambda a, b: a | b)
        with k.if_(found == 0x12345678):
            out[0] = found
    return k.finish()


def build_peak(target: Target, symbol: str, products: Products) -> str:
    """Views: seeds u8 (read, one vector from each workgroup's number up), out f32 (written).

    Only targets with bfloat16 products have a peak of those.
    """
    k = KernelBuilder(symbol, target)
    seeds, out = k.views(u8, f32)
    lanes = target.lanes()
    with k.workgroups() as group:
        type_ = i32.x(lanes) if products is Products.INTEGER else f32.x(lanes)
        chains = [k.variable(type_) for _ in range(PEAK_CHAINS)]
        a = (seeds + group).vector(0, 4 * lanes)
        with k.range(0, PEAK_STEPS):
            for chain in chains:
                chain.set(_step(products, chain.value, a))
        for number, chain in enumerate(chains):
            out[number] = chain.value.lane(0).to(f32)
    return k.finish()


def _step(products: Products, sum_: Value, a: Value) -> Value:
    """The next sum of a chain. It is an operand, too, where a product of two constants would be
    taken out of the loop.
    """
    match products:
        case Products.INTEGER:
            return dot4(sum_, a, sum_.bits_as(i8), 7)
        case Products.SHORT:
            return pair_dot(sum_, a.bits_as(u32), a.bits_as(u32))
        case Products.FLOAT:
            return fma(sum_, a.bits_as(f32), a.bits_as(f32))
