"""bfloat16 products: sums of two of them in one instruction, where the processor has it.

    result[l] = acc[l] + a[2l] · b[2l] + a[2l + 1] · b[2l + 1]

Operands are pairs of bfloat16 in words, low half first. The instruction takes subnormal operands
for zero, and rounds as it likes between the two sums, yet always in the same way.
"""

from __future__ import annotations

import functools
from typing import Any

from crossinfer.jit import llvm_ir as ir
from crossinfer.jit.types import Type, f32, u32
from crossinfer.jit.value import Value

_ABILITY = "avx512bf16"


def pair_dot(acc: Value, a: Value, b: Value) -> Value:
    """acc f32[16]; a and b u32[16] of pairs. Only for targets with avx512bf16."""
    _require(acc, f32.x(16))
    operands = [acc.llvm, *(_as_short_floats(v) for v in (a, b))]
    return _call("llvm.x86.avx512bf16.dpbf16ps.512", acc, f32.x(16), operands)


def to_pairs(low: Value, high: Value) -> Value:
    """Two f32[16], rounded to nearest even, to u32[16] whose halves are lane l of each.

    Only for targets with avx512bf16; it takes subnormal numbers for zero.
    """
    order = [lane + 16 * half for lane in range(16) for half in (0, 1)]
    return _to_short(low, high).shuffle(order).bits_as(u32)


def to_neighbour_pairs(first: Value, second: Value) -> Value:
    """As `to_pairs`, of neighbours: lanes (0, 1), (2, 3), … of `first`, then of `second`."""
    return _to_short(first, second).bits_as(u32)


def round_to_short(value: Value) -> Value:
    """f32 to the bits of the nearest bfloat16, in the low half of u32. On any target."""
    bits = value.bits_as(u32)
    odd = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + odd) >> 16
    return value.is_nan().select((bits >> 16) | 0x40, rounded)


def _to_short(first: Value, second: Value) -> Value:
    """The lanes of both, one after the other, as the bits of bfloat16."""
    _require(first, f32.x(16))
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    both = _call(name, first, None, [second.llvm, first.llvm])
    return Value(first.emitter, _U16X32, first.emitter.ir.bitcast(both.llvm, _U16X32.llvm))


def _require(value: Value, type_: Type) -> None:
    if value.type != type_ or not value.emitter.target.has(_ABILITY):
        raise TypeError(f"products of bfloat16 need {type_} and a target with {_ABILITY}")


def _as_short_floats(pairs: Value) -> Any:
    return pairs.emitter.ir.bitcast(pairs.llvm, _short_vector(32))


def _short_vector(lanes: int) -> Any:
    return ir.VectorType(_short_float(), lanes)


@functools.cache
def _short_float() -> Any:
    """`bfloat`, for which llvmlite has no type."""

    # `ir` is imported late, so that its types are Any to the checker.
    class ShortFloat(ir.Type):  # type: ignore[misc]
        def _to_string(self) -> str:
            return "bfloat"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ShortFloat)

        def __hash__(self) -> int:
            return hash(ShortFloat)

    return ShortFloat()


def _call(name: str, like: Value, result: Type | None, arguments: list[Any]) -> Value:
    """A call of an intrinsic; without a `result` it gives 32 bfloat16."""
    module = like.emitter.module
    function = module.globals.get(name)
    returned = _short_vector(32) if result is None else result.llvm
    if function is None:
        signature = ir.FunctionType(returned, [argument.type for argument in arguments])
        function = ir.Function(module, signature, name)
    return Value(like.emitter, result or _U16X32, like.emitter.ir.call(function, arguments))


_U16X32 = Type("u", 16, 32)
