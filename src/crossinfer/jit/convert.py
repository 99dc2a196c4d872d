"""Conversions between numeric types, as `Value.to` makes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from crossinfer.jit import half
from crossinfer.jit import llvm_ir as ir
from crossinfer.jit.types import Type, bf16, f16, f32, u16, u32

if TYPE_CHECKING:
    from crossinfer.jit.value import Value


def convert(value: Value, scalar: Type) -> Value:
    """The nearest value of another scalar type, lane by lane."""
    source, target = value.type, scalar.x(value.type.lanes)
    if source == target:
        return value
    native = value.emitter.target.has("f16c")
    if source.scalar == bf16:
        return (value.bits_as(u16).to(u32) << 16).bits_as(f32).to(scalar)
    if source.scalar == f16 and not (native and scalar == f32):
        wide = value.to(f32) if native else half.widen(value)
        return wide.to(scalar)
    if scalar == f16 and not (native and source.scalar == f32):
        wide = value.to(f32)
        return wide.to(f16) if native else half.narrow(wide)
    if scalar == bf16:
        raise TypeError("no kernel needs bf16 results, so none can be made")
    return dataclasses.replace(value, type=target, llvm=_instruction(value, target))


def _instruction(value: Value, target: Type) -> Any:
    """The result of the one instruction for it."""
    source, builder, operand, result = value.type, value.emitter.ir, value.llvm, target.llvm
    half_type = ir.HalfType() if source.lanes == 1 else ir.VectorType(ir.HalfType(), source.lanes)
    if source.scalar == f16:
        return builder.fpext(builder.bitcast(operand, half_type), result)
    if target.scalar == f16:
        return builder.bitcast(builder.fptrunc(operand, half_type), result)
    if source.is_float and target.is_float:
        make = builder.fpext if target.bits > source.bits else builder.fptrunc
    elif source.is_float:
        make = builder.fptosi if target.signed else builder.fptoui
    elif target.is_float:
        make = builder.sitofp if source.signed else builder.uitofp
    elif target.bits < source.bits:
        make = builder.trunc
    elif target.bits > source.bits:
        make = builder.sext if source.signed else builder.zext
    else:
        return operand
    return make(operand, result)
