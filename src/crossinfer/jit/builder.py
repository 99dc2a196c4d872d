"""The kernel builder: Python that reads like the kernel, and writes LLVM IR.

    k = KernelBuilder("scale_rows", target)
    x, y = k.views(f32, f32)
    (length, factor) = k.constants(i32, f32)
    with k.workgroups() as row:
        with k.range(0, length) as i:
            y[row * length + i] = x[row * length + i] * factor
    text = k.finish()

A kernel has the signature that CONTRACT.md fixes: it is given its arguments' memory (the views'
addresses, then the dispatch's constants), a range of workgroups, and the worker's number. It
allocates nothing and assumes no alignment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from crossinfer.jit import arithmetic
from crossinfer.jit import llvm_ir as ir
from crossinfer.jit.pointer import Pointer
from crossinfer.jit.target import Target
from crossinfer.jit.types import Type, i32, i64, u8, u32, u64
from crossinfer.jit.value import Emitter, Number, Operand, Value
from crossinfer.jit.variable import Variable

VIEW_SLOTS = 8
CONSTANTS_OFFSET = 8 * VIEW_SLOTS
"""Where the constants start in a kernel's arguments: behind the addresses of its views."""


class KernelBuilder:
    """One kernel for one target, under construction."""

    def __init__(self, symbol: str, target: Target) -> None:
        self.symbol = symbol
        self.target = target
        self._module = ir.Module(symbol)
        self._module.triple = target.triple
        word = ir.IntType(64)
        signature = ir.FunctionType(ir.VoidType(), [ir.PointerType(), word, word, ir.IntType(32)])
        function = ir.Function(self._module, signature, symbol)
        function.attributes.add("nounwind")
        # Else LLVM makes calls of memset and memcpy out of loops. (llvmlite refuses to `add` it.)
        set.add(function.attributes, '"no-builtins"')
        self.emitter = Emitter(self._module, function, target)
        arguments, first, count, worker = function.args
        self._arguments = Pointer(self.emitter, u8, arguments)
        self._first = Value(self.emitter, i64, first)
        self._count = Value(self.emitter, i64, count)
        self.worker = Value(self.emitter, u32, worker)

    # Arguments.

    def views(self, *elements: Type) -> tuple[Pointer, ...]:
        """The kernel's views, in the order of the dispatch, as pointers to these elements."""
        slots = self._arguments.cast(u64)
        return tuple(
            Pointer(
                self.emitter,
                element,
                self.emitter.ir.inttoptr(slots[number].llvm, ir.PointerType()),
            )
            for number, element in enumerate(elements)
        )

    def constants(self, *types: Type) -> tuple[Value, ...]:
        """The dispatch's constants, packed without gaps; 32-bit integers come as int64."""
        values, offset = [], CONSTANTS_OFFSET
        for type_ in types:
            value = (self._arguments + offset).cast(type_)[0]
            values.append(value.to(i64) if type_ in (i32, u32) else value)
            offset += type_.size_in_bytes
        return tuple(values)

    # Values.

    def constant(self, type_: Type, number: Number | Sequence[Number]) -> Value:
        """A constant; one number is repeated in every lane of a vector."""
        return self.emitter.constant(type_, number)

    def index(self, value: Value | int) -> Value:
        """`value` as int64."""
        return self.constant(i64, value) if isinstance(value, int) else value.to(i64)

    def variable(self, type_: Type, start: Operand = 0) -> Variable:
        """A value that loops may change."""
        return Variable(self.emitter, type_, start)

    def lane_numbers(self, lanes: int, type_: Type = i32) -> Value:
        """0, 1, 2, …"""
        return self.constant(type_.x(lanes), range(lanes))

    def tail_mask(self, count: Value, lanes: int) -> Value:
        """The first `count` lanes; all of them if there are more."""
        return self.lane_numbers(lanes) < arithmetic.minimum(count, lanes).to(i32).splat(lanes)

    def scratch(self, element: Type, count: int) -> Pointer:
        """Memory of this call's own, undefined at first; a few kilobytes at most."""
        slot = self.emitter.slot(ir.ArrayType(element.llvm, count), alignment=64)
        return Pointer(self.emitter, element, slot)

    # Control flow.

    @contextlib.contextmanager
    def workgroups(self) -> Iterator[Value]:
        """Runs the body for each workgroup that this call was given."""
        with self.range(*self.given_workgroups()) as group:
            yield group

    def given_workgroups(self) -> tuple[Value, Value]:
        """The first workgroup that this call was given, and the one behind the last.

        For kernels that do better with several than with one after another.
        """
        return self._first, self._first + self._count

    @contextlib.contextmanager
    def range(self, start: Value | int, end: Value | int, step: int = 1) -> Iterator[Value]:
        """Runs the body for start, start + step, … below `end` (int64)."""
        start, end = self.index(start), self.index(end)
        counter = self.variable(i64, start)
        with self.while_() as loop:
            loop.check(counter.value < end)
            yield counter.value
            counter += step

    def vectors(self, start: Value | int, end: Value | int, lanes: int) -> Iterator[Span]:
        """The body of a `for` over this is written twice: for whole vectors, and for the rest.

        for at in k.vectors(0, n, 16):
            at.store(y, at.load(x) * 2.0)
        """
        start, end = self.index(start), self.index(end)
        rest = (end - start) % lanes
        with self.range(start, end - rest, lanes) as i:
            yield Span(i, lanes, None)
        with self.if_(rest > 0):
            yield Span(end - rest, lanes, self.tail_mask(rest, lanes))

    @contextlib.contextmanager
    def while_(self) -> Iterator[Loop]:
        """Repeats the body until one of its `check`s fails."""
        builder = self.emitter.ir
        head, after = (self._block(name) for name in ("loop", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        yield Loop(self, after)
        builder.branch(head)
        builder.position_at_end(after)

    @contextlib.contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        """Runs the body if the condition holds."""
        with self.emitter.ir.if_then(condition.llvm):
            yield

    @contextlib.contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """Two bodies: `with k.if_else(c) as (then, otherwise): with then: …; with otherwise: …`."""
        with self.emitter.ir.if_else(condition.llvm) as bodies:
            yield bodies

    def return_if(self, condition: Value) -> None:
        """Leave the kernel here if the condition holds."""
        with self.emitter.ir.if_then(condition.llvm):
            self.emitter.ir.ret_void()

    def finish(self) -> str:
        """The module's LLVM IR."""
        self.emitter.ir.ret_void()
        self.emitter.close()
        return str(self._module)

    def _block(self, name: str) -> Any:
        return self.emitter.ir.append_basic_block(name)


class Span:
    """`lanes` consecutive elements from `start` on, or those of them that are in `mask`."""

    def __init__(self, start: Value, lanes: int, mask: Value | None) -> None:
        self.start = start
        self.lanes = lanes
        self.mask = mask

    def load(self, source: Pointer, otherwise: Operand = 0) -> Value:
        """These elements; `otherwise` for those that are not in the mask."""
        if self.mask is None:
            return source.vector(self.start, self.lanes)
        return source.masked(self.start, self.mask, otherwise)

    def store(self, target: Pointer, value: Value) -> None:
        """Writes these elements and no other."""
        if self.mask is None:
            target.store(self.start, value)
        else:
            target.store_masked(self.start, value, self.mask)


class Loop:
    """A loop whose body decides when it ends."""

    def __init__(self, builder: KernelBuilder, after: Any) -> None:
        self._builder = builder
        self._after = after

    def check(self, condition: Value) -> None:
        """Leave the loop here unless the condition holds."""
        emitter, body = self._builder.emitter, self._builder._block("body")
        emitter.ir.cbranch(condition.llvm, body, self._after)
        emitter.ir.position_at_end(body)

    def end_if(self, condition: Value) -> None:
        """Leave the loop here if the condition holds."""
        self.check(~condition)
