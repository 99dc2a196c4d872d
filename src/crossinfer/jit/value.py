"""Typed values with Python operators, which emit LLVM instructions where they are written.

Operands of one type combine with each other and with Python numbers; a scalar combines with a
vector of its type by being repeated in every lane. Everything else is converted by hand, with `to`
(numeric) or `bits_as` (same bits).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from crossinfer.jit import llvm_ir as ir
from crossinfer.jit.convert import convert
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, i1, i32

Number = int | float


class Emitter:
    """Where instructions go: an insertion point in a function of one module, for one target."""

    def __init__(self, module: Any, function: Any, target: Target) -> None:
        self.module = module
        self.function = function
        self.target = target
        self._slots = ir.IRBuilder(function.append_basic_block("slots"))
        self._body = function.append_basic_block("body")
        self.ir = ir.IRBuilder(self._body)

    def slot(self, llvm_type: Any, alignment: int | None = None) -> Any:
        """The address of memory of this call's own.

        All slots are made before anything else: one made in a loop would grow the stack, and LLVM
        cuts even the first block in two where it finds a slow division.
        """
        made = self._slots.alloca(llvm_type)
        made.align = alignment
        made.type = ir.PointerType()  # so that other types may be stored there, too
        return made

    def close(self) -> None:
        """The function is complete."""
        self._slots.branch(self._body)

    def constant(self, type_: Type, number: Number | Sequence[Number]) -> Value:
        """A constant; one number is repeated in every lane."""
        numbers = [number] * type_.lanes if isinstance(number, int | float) else list(number)
        if len(numbers) != type_.lanes:
            raise ValueError(f"{len(numbers)} numbers were given for a constant of type {type_}")
        converted = [_fit(type_, n) for n in numbers]
        plain = converted[0] if type_.lanes == 1 else converted
        return Value(self, type_, ir.Constant(type_.llvm, plain))

    def intrinsic(self, name: str, result: Type, *arguments: Value) -> Value:
        """A call of an LLVM intrinsic. Its name must already tell its types."""
        function = self.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(result.llvm, [a.type.llvm for a in arguments])
            function = ir.Function(self.module, signature, name)
        return Value(self, result, self.ir.call(function, [a.llvm for a in arguments]))


def _fit(type_: Type, number: Number) -> Number:
    if type_.is_float:
        return float(number)
    if int(number) != number:
        raise ValueError(f"{number} is not a value of type {type_}")
    low = -(1 << (type_.bits - 1)) if type_.signed else 0
    high = low + (1 << type_.bits)
    if not low <= number < high:
        raise ValueError(f"{number} is not a value of type {type_}")
    return int(number)


_INTEGER = {"+": "add", "-": "sub", "*": "mul", "<<": "shl", "&": "and_", "|": "or_", "^": "xor"}
_SIGNED = {"//": "sdiv", "%": "srem", ">>": "ashr"}
_UNSIGNED = {"//": "udiv", "%": "urem", ">>": "lshr"}
_FLOAT = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A value in a kernel. Division of integers truncates towards zero, as the machine's."""

    emitter: Emitter
    type: Type
    llvm: Any

    __hash__ = None  # type: ignore[assignment]  # `==` makes an instruction

    # Operators.

    def __add__(self, other: Operand) -> Value:
        return self._binary("+", other)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("-", other)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("*", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("/", other)

    def __floordiv__(self, other: Operand) -> Value:
        return self._binary("//", other)

    def __mod__(self, other: Operand) -> Value:
        return self._binary("%", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("<<", other)

    def __rshift__(self, other: Operand) -> Value:
        return self._binary(">>", other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("&", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("|", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("^", other)

    def __radd__(self, other: Number) -> Value:
        return self._like(other) + self

    def __rsub__(self, other: Number) -> Value:
        return self._like(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self._like(other) * self

    def __rtruediv__(self, other: Number) -> Value:
        return self._like(other) / self

    def __neg__(self) -> Value:
        make = self.emitter.ir.fneg if self.type.is_float else self.emitter.ir.neg
        return Value(self.emitter, self.type, make(self.llvm))

    def __invert__(self) -> Value:
        return Value(self.emitter, self.type, self.emitter.ir.not_(self.llvm))

    def __lt__(self, other: Operand) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare(">=", other)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("!=", other)

    def is_nan(self) -> Value:
        unordered = self.emitter.ir.fcmp_unordered("uno", self.llvm, self.llvm)
        return Value(self.emitter, i1.x(self.type.lanes), unordered)

    # Conversions.

    def to(self, scalar: Type) -> Value:
        """The nearest value of another scalar type, lane by lane.

        Integers wrap, floats become integers by truncation, and f16 rounds to nearest even. What
        is f16 or bf16 goes by way of f32.
        """
        return convert(self, scalar)

    def bits_as(self, type_: Type) -> Value:
        """The same bits as `type_`, or as the vector of such scalars that they fill."""
        lanes = self.type.bits * self.type.lanes // type_.bits
        target = type_.x(lanes) if type_.lanes == 1 else type_
        if target.llvm == self.type.llvm:
            return Value(self.emitter, target, self.llvm)
        return Value(self.emitter, target, self.emitter.ir.bitcast(self.llvm, target.llvm))

    # Lanes.

    def splat(self, lanes: int) -> Value:
        """This scalar in every one of `lanes` lanes."""
        if lanes == 1:
            return self
        builder, type_ = self.emitter.ir, self.type.x(lanes)
        nothing = ir.Constant(type_.llvm, ir.Undefined)
        first = builder.insert_element(nothing, self.llvm, ir.Constant(i32.llvm, 0))
        zeros = ir.Constant(i32.x(lanes).llvm, [0] * lanes)
        return Value(self.emitter, type_, builder.shuffle_vector(first, nothing, zeros))

    def lane(self, index: int | Value) -> Value:
        """One lane as a scalar."""
        if self.type.lanes == 1:
            return self
        where = ir.Constant(i32.llvm, index) if isinstance(index, int) else index.llvm
        return Value(
            self.emitter, self.type.scalar, self.emitter.ir.extract_element(self.llvm, where)
        )

    def with_lane(self, index: int | Value, scalar: Value) -> Value:
        """This vector with one lane replaced."""
        where = ir.Constant(i32.llvm, index) if isinstance(index, int) else index.llvm
        return Value(
            self.emitter,
            self.type,
            self.emitter.ir.insert_element(self.llvm, scalar.llvm, where),
        )

    def shuffle(self, indices: Sequence[int], other: Value | None = None) -> Value:
        """The lanes at `indices` of this vector followed by `other`."""
        if len(indices) == 1 and other is None:  # a vector of one lane is a scalar here
            return self.lane(indices[0])
        second = ir.Constant(self.type.llvm, ir.Undefined) if other is None else other.llvm
        mask = ir.Constant(i32.x(len(indices)).llvm, list(indices))
        result = self.emitter.ir.shuffle_vector(self.llvm, second, mask)
        return Value(self.emitter, self.type.x(len(indices)), result)

    def part(self, start: int, lanes: int) -> Value:
        """`lanes` consecutive lanes."""
        if start == 0 and lanes == self.type.lanes:
            return self
        return self.shuffle(range(start, start + lanes))

    def select(self, yes: Operand, no: Operand) -> Value:
        """This condition's choice between two values, lane by lane."""
        given = yes if isinstance(yes, Value) else no
        if not isinstance(given, Value):
            raise TypeError("one of the two values to select from must tell their type")
        a, b = _pair(_as_value(given, yes), _as_value(given, no))
        condition = self
        if condition.type.lanes == 1 and a.type.lanes > 1:
            condition = condition.splat(a.type.lanes)
        elif a.type.lanes == 1 and condition.type.lanes > 1:
            a, b = a.splat(condition.type.lanes), b.splat(condition.type.lanes)
        return Value(self.emitter, a.type, self.emitter.ir.select(condition.llvm, a.llvm, b.llvm))

    def _like(self, number: Number) -> Value:
        return self.emitter.constant(self.type, number)

    def _binary(self, symbol: str, other: Operand) -> Value:
        a, b = _pair(self, _as_value(self, other))
        integer = _INTEGER | (_SIGNED if a.type.signed else _UNSIGNED)
        table = _FLOAT if a.type.is_float else integer
        if symbol not in table or not (a.type.is_float or a.type.is_integer):
            raise TypeError(f"values of type {a.type} have no operator {symbol}")
        make = getattr(self.emitter.ir, table[symbol])
        return Value(self.emitter, a.type, make(a.llvm, b.llvm))

    def _compare(self, symbol: str, other: Operand) -> Value:
        a, b = _pair(self, _as_value(self, other))
        if not (a.type.is_float or a.type.is_integer):
            raise TypeError(f"values of type {a.type} do not compare; convert them to f32")
        builder = self.emitter.ir
        if a.type.is_float:
            make = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
        else:
            make = builder.icmp_signed if a.type.signed else builder.icmp_unsigned
        return Value(self.emitter, i1.x(a.type.lanes), make(symbol, a.llvm, b.llvm))


Operand = Value | int | float


def _as_value(like: Value, operand: Operand) -> Value:
    return operand if isinstance(operand, Value) else like._like(operand)


def _pair(a: Value, b: Value) -> tuple[Value, Value]:
    """Both operands in one type: a scalar beside a vector is repeated."""
    if a.type.scalar != b.type.scalar:
        raise TypeError(f"{a.type} and {b.type} do not combine; convert one with `to`")
    if a.type.lanes == b.type.lanes:
        return a, b
    if a.type.lanes == 1:
        return a.splat(b.type.lanes), b
    if b.type.lanes == 1:
        return a, b.splat(a.type.lanes)
    raise TypeError(f"{a.type} and {b.type} have different numbers of lanes")
