"""Pointers to elements of one type: scalar and vector loads and stores, with masks for tails.

`p[i]` and `p[i] = v` are one element; `p.vector(i, n)` and `p.store(i, v)` are `n` consecutive
elements. Nothing is assumed to be aligned. Indices are int64.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from crossinfer.jit import llvm_ir as ir
from crossinfer.jit.types import Type, i1, i64
from crossinfer.jit.value import Emitter, Operand, Value

Index = Value | int


@dataclasses.dataclass(frozen=True, eq=False)
class Pointer:
    """The address of elements of type `element`, a scalar type."""

    emitter: Emitter
    element: Type
    llvm: Any

    def __getitem__(self, index: Index) -> Value:
        return self.vector(index, 1)

    def __setitem__(self, index: Index, value: Operand) -> None:
        if not isinstance(value, Value):
            value = self.emitter.constant(self.element, value)
        self.store(index, value)

    def __add__(self, elements: Index) -> Pointer:
        """The address of element `elements`."""
        return Pointer(self.emitter, self.element, self._address(elements))

    def cast(self, element: Type) -> Pointer:
        """The same address, seen as elements of another type."""
        return Pointer(self.emitter, element, self.llvm)

    def vector(self, index: Index, lanes: int) -> Value:
        """Elements `index … index + lanes - 1`."""
        type_ = self.element.x(lanes)
        address = self._address(index)
        return Value(self.emitter, type_, self.emitter.ir.load(address, align=1, typ=type_.llvm))

    def store(self, index: Index, value: Value) -> None:
        """Write a scalar, or a vector to consecutive elements."""
        self._check(value)
        self.emitter.ir.store(value.llvm, self._address(index), align=1)

    def masked(self, index: Index, mask: Value, otherwise: Operand = 0) -> Value:
        """A vector of which only the lanes in `mask` are read; the others are `otherwise`."""
        type_ = self.element.x(mask.type.lanes)
        if type_.lanes == 1:
            raise TypeError("a masked load is of a vector; put a scalar load into an `if_`")
        default = (
            otherwise if isinstance(otherwise, Value) else self.emitter.constant(type_, otherwise)
        )
        return self._call_masked("load", type_, index, mask, default)

    def store_masked(self, index: Index, value: Value, mask: Value) -> None:
        """Write only the lanes of a vector that are in `mask`."""
        self._check(value)
        self._call_masked("store", value.type, index, mask, value)

    def prefetch(self, index: Index, *, level: int = 1) -> None:
        """Have element `index`'s cache line fetched, no nearer than into the cache of this level
        (1 to 3); a hint, harmless for any address.
        """
        self._prefetch(index, for_write=False, level=level)

    def prefetch_for_write(self, index: Index) -> None:
        """As `prefetch`, for a line that is about to be written."""
        self._prefetch(index, for_write=True, level=1)

    def _prefetch(self, index: Index, *, for_write: bool, level: int) -> None:
        name, number = "llvm.prefetch.p0", ir.IntType(32)
        function = self.emitter.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(ir.VoidType(), [ir.PointerType(), number, number, number])
            function = ir.Function(self.emitter.module, signature, name)
        write, keep, data = (ir.Constant(number, n) for n in (int(for_write), 4 - level, 1))
        self.emitter.ir.call(function, [self._address(index), write, keep, data])

    def _call_masked(
        self, what: str, type_: Type, index: Index, mask: Value, value: Value
    ) -> Value:
        name = f"llvm.masked.{what}.{type_.mangled}.p0"
        is_load = what == "load"
        align = ir.Constant(ir.IntType(32), 1)
        address = self._address(index)
        given = (
            [address, align, mask.llvm, value.llvm]
            if is_load
            else [value.llvm, address, align, mask.llvm]
        )
        function = self.emitter.module.globals.get(name)
        if function is None:
            result = type_.llvm if is_load else ir.VoidType()
            signature = ir.FunctionType(result, [argument.type for argument in given])
            function = ir.Function(self.emitter.module, signature, name)
        return Value(self.emitter, type_, self.emitter.ir.call(function, given))

    def _check(self, value: Value) -> None:
        if value.type.scalar != self.element:
            raise TypeError(f"a pointer to {self.element} cannot store {value.type}")

    def _address(self, index: Index) -> Any:
        offset = ir.Constant(i64.llvm, index) if isinstance(index, int) else _as_index(index)
        return self.emitter.ir.gep(
            self.llvm, [offset], source_etype=self.element.llvm, inbounds=False
        )


def _as_index(index: Value) -> Any:
    if not index.type.is_integer or index.type.scalar == i1 or index.type.lanes != 1:
        raise TypeError(f"a value of type {index.type} is no index")
    return index.to(i64).llvm
