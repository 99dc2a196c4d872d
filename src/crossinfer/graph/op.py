"""What an op is: operands, shape rule, float64 meaning, tolerance class."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import ClassVar

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import PlanError
from crossinfer.core.records import record
from crossinfer.formats.activations import Rounding
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.buffer import Access
from crossinfer.hal.kernel import Argument, Operand

Operands = Mapping[str, Operand]


@record
class OperandRule:
    """What an op says of one of its operands.

    An output with `updates` set lives in the memory of that input: the op changes it in place.
    """

    name: str
    optional: bool = False
    updates: str | None = None


@record
class Op(abc.ABC):
    """An op with its attributes. Two equal ops compute the same."""

    name: ClassVar[str]
    inputs: ClassVar[tuple[OperandRule, ...]]
    outputs: ClassVar[tuple[OperandRule, ...]]
    tolerance: ClassVar[Tolerance] = Tolerance.F32
    stored: ClassVar[tuple[str, ...]] = ()
    """The inputs whose storage types make variants of the op: weights, a table, a cache."""

    @abc.abstractmethod
    def infer(self, inputs: Operands) -> dict[str, Operand]:
        """The outputs' types. Raises PlanError if the inputs don't fit together."""

    @abc.abstractmethod
    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The op's meaning, in float64.

        Weights come as floats, whatever their storage. Returns the outputs that are not updates;
        an input that an output updates is changed in place, rounded to the array's dtype.
        """

    def with_rounded(
        self, inputs: Mapping[str, Array], roundings: Mapping[str, Rounding]
    ) -> tuple[Op, dict[str, Array]]:
        """An op and its inputs that mean what a kernel computes that rounds these operands first
        (`hal.kernel.Lowering.quantized`).
        """
        rounded = {name: rounding.round(inputs[name]) for name, rounding in roundings.items()}
        return self, {**inputs, **rounded}

    def check(self, inputs: Operands) -> None:
        """Raises PlanError unless exactly the declared inputs are given."""
        for rule in self.inputs:
            if not rule.optional and rule.name not in inputs:
                raise PlanError(f"The op {self.name} needs the input {rule.name}.")
        for name in inputs:
            if name not in _input_names(type(self)):
                raise PlanError(f"The op {self.name} has no input {name}.")

    def variant(self, operands: Operands) -> str:
        """The op's name with the storage types that it decodes, each once.

        As `linear[q4_1]`, or `qkv_linear[q4_k+q6_k]` where they differ.
        """
        if not self.stored:
            return self.name
        labels = dict.fromkeys(operands[name].storage.label for name in self.stored)
        return f"{self.name}[{'+'.join(labels)}]"

    def arguments(self, operands: Operands) -> tuple[Argument, ...]:
        """One binding for each operand, in order, with what the op does to it."""
        inputs = _input_names(type(self))
        updated = {rule.updates for rule in self.outputs}
        return tuple(
            Argument(
                name,
                Access.READ_WRITE
                if name in updated
                else Access.READ
                if name in inputs
                else Access.WRITE,
            )
            for name in operands
        )

    def require(self, condition: bool, inputs: Operands, rule: str) -> None:
        """Raises PlanError, naming the inputs' types, if a shape rule is broken."""
        if not condition:
            given = ", ".join(f"{name} {operand}" for name, operand in inputs.items())
            raise PlanError(f"The op {self.name} needs {rule}, but got {given}.")


@functools.cache
def _input_names(op: type[Op]) -> frozenset[str]:
    return frozenset(rule.name for rule in op.inputs)


def float32(*shape: int) -> Operand:
    """The type of an activation."""
    return Operand(shape, DType.F32)


def are_batch_tables(inputs: Operands) -> bool:
    """Whether query_start[S + 1], kv_len[S] and block_table[S, B] fit together (`graph.batch`)."""
    lengths, table = inputs["kv_len"], inputs["block_table"]
    return (
        has(lengths, DType.I32, 1)
        and has(table, DType.I32, 2)
        and table.shape[0] == lengths.shape[0]
        and inputs["query_start"] == Operand((lengths.shape[0] + 1,), DType.I32)
    )


def has(operand: Operand, dtype: DType, rank: int) -> bool:
    """Whether an operand is a plain tensor of this dtype and rank."""
    return operand.storage is dtype and len(operand.shape) == rank
