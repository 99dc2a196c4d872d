"""A product at a model's own size whose outputs are all checked, though few are computed.

The rows of its weights repeat: output j is output j mod PERIOD, for every operand that goes with
the outputs repeats too. The period is a prime, so what a kernel takes from a wrong place differs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.formats.activations import Rounding
from crossinfer.graph.op import Op, Operands
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.case import Case, Stored
from crossinfer.verify.cases_linear import linear_inputs
from crossinfer.verify.data import Random

PERIOD = 251


class _RepeatedCase(Case):
    """Computes the meaning of the first PERIOD outputs, and repeats them."""

    def expected(
        self, stored: Stored, quantized: Mapping[str, Rounding] | None = None
    ) -> dict[str, Array]:
        small = _small(self.inputs)
        case = Case(self.op, small, self.shape_class, self.make)
        cut = {
            name: _cut(stored[name], self.inputs[name], operand) for name, operand in small.items()
        }
        made = case.expected(cut, quantized)
        types = self.outputs()
        return {name: _repeat(values, types[name].shape[-1]) for name, values in made.items()}


def repeated_rows(op: Op, inputs: Operands) -> Case:
    """The case of a product (`linear` or what is joined of it) at exactly these sizes."""
    return _RepeatedCase(op, inputs, "planned", functools.partial(_make, inputs=inputs))


def _make(rng: Random, inputs: Operands) -> dict[str, Array]:
    small = _small(inputs)
    made = linear_inputs(rng, small)
    return {name: _grown(values, small[name], inputs[name]) for name, values in made.items()}


def _small(inputs: Operands) -> dict[str, Operand]:
    """The operands of the first outputs alone."""
    return {name: _small_operand(name, operand) for name, operand in inputs.items()}


def _small_operand(name: str, operand: Operand) -> Operand:
    shape = list(operand.shape)
    if operand.role is Role.WEIGHT:
        shape[0] = min(shape[0], PERIOD)
    elif name not in ("x", "norm_weight"):
        shape[-1] = min(shape[-1], PERIOD)
    return Operand(tuple(shape), operand.storage, operand.role)


def _grown(values: Array, small: Operand, whole: Operand) -> Array:
    """`values`, as stored, repeated to the whole operand."""
    if small.shape == whole.shape:
        return values
    if whole.role is Role.WEIGHT:  # in bytes: a row is a whole number of blocks
        rows = np.frombuffer(values.tobytes(), np.uint8).reshape(small.shape[0], -1)
        return np.resize(rows, (whole.shape[0], rows.shape[1]))
    return _repeat(values, whole.shape[-1])


def _cut(values: Array, whole: Operand, small: Operand) -> Array:
    """The part of an operand, as stored, that goes with the first outputs."""
    if small.shape == whole.shape:
        return values
    if whole.role is Role.WEIGHT:
        return np.ascontiguousarray(values[: small.shape[0]])
    return np.ascontiguousarray(values[..., : small.shape[-1]])


def _repeat(values: Array, size: int) -> Array:
    """The last dimension repeated to `size`."""
    repeated: Array = np.take(values, np.arange(size) % values.shape[-1], axis=-1)
    return repeated
