"""Types of values in generated kernels: scalars, and vectors of a fixed number of lanes.

Signed and unsigned integers are different types, so that `>>`, `//`, `<` and conversions need no
variants: the operand's type says which instruction is meant.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from crossinfer.core.records import record
from crossinfer.jit import llvm_ir as ir

_NAMES = {"h": "f", "b": "bf"}


@record
class Type:
    """`kind` is `i` (signed), `u` (unsigned), `f` (float), `h` (float16) or `b` (bfloat16).

    The two short floats are storage only: they have no arithmetic, and are bits to LLVM.
    """

    kind: str
    bits: int
    lanes: int = 1

    def __str__(self) -> str:
        name = f"{_NAMES.get(self.kind, self.kind)}{self.bits}"
        return name if self.lanes == 1 else f"{name}x{self.lanes}"

    def x(self, lanes: int) -> Type:
        """The vector of `lanes` such scalars; `x(1)` is the scalar itself."""
        return dataclasses.replace(self, lanes=lanes)

    @property
    def scalar(self) -> Type:
        return self.x(1)

    @property
    def signed(self) -> bool:
        return self.kind == "i"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_float(self) -> bool:
        """Whether it is a float that arithmetic works on."""
        return self.kind == "f"

    @property
    def size_in_bytes(self) -> int:
        return self.bits * self.lanes // 8

    @property
    def llvm(self) -> Any:
        """The type in LLVM, where integers have no sign."""
        if self.is_float:
            element = ir.FloatType() if self.bits == 32 else ir.DoubleType()
        else:
            element = ir.IntType(self.bits)
        return element if self.lanes == 1 else ir.VectorType(element, self.lanes)

    @property
    def mangled(self) -> str:
        """The type's part of an LLVM intrinsic's name, as `v16f32`."""
        element = f"{'f' if self.is_float else 'i'}{self.bits}"
        return element if self.lanes == 1 else f"v{self.lanes}{element}"


i1 = Type("u", 1)
i8, i16, i32, i64 = (Type("i", bits) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Type("u", bits) for bits in (8, 16, 32, 64))
f32, f64 = (Type("f", bits) for bits in (32, 64))
f16, bf16 = Type("h", 16), Type("b", 16)
