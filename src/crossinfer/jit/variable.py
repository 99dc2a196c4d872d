"""Variables that loops change. They live in memory only until LLVM puts them into registers."""

from __future__ import annotations

from crossinfer.jit.types import Type
from crossinfer.jit.value import Emitter, Operand, Value


class Variable:
    """A value that may be replaced: read it with `value`, write it with `set` or `+=`."""

    def __init__(self, emitter: Emitter, type_: Type, start: Operand) -> None:
        self._emitter = emitter
        self.type = type_
        self._slot = emitter.slot(type_.llvm)
        self.set(start)

    @property
    def value(self) -> Value:
        loaded = self._emitter.ir.load(self._slot, typ=self.type.llvm)
        return Value(self._emitter, self.type, loaded)

    def set(self, value: Operand) -> None:
        if not isinstance(value, Value):
            value = self._emitter.constant(self.type, value)
        if value.type != self.type:
            if value.type != self.type.scalar:
                raise TypeError(f"a variable of type {self.type} cannot hold {value.type}")
            value = value.splat(self.type.lanes)
        self._emitter.ir.store(value.llvm, self._slot)

    def __iadd__(self, other: Operand) -> Variable:
        self.set(self.value + other)
        return self
