"""A case: an op on operands of certain types, inputs for it, and what must come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.activations import Rounding
from crossinfer.formats.blocks import dequantize
from crossinfer.graph.batch import PADDING_BLOCK
from crossinfer.graph.op import Op
from crossinfer.graph.tolerance import Tolerance
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.data import Random, random_stored

Stored = Mapping[str, Array]
"""Tensors by operand name, as arrays whose bytes are their storage."""

Make = Callable[[Random], dict[str, Array]]
"""Gives fresh inputs."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """An op with its inputs' types. `make` gives fresh random inputs as they are stored."""

    op: Op
    inputs: Mapping[str, Operand]
    shape_class: str
    make: Make

    @property
    def variant(self) -> str:
        """What the case tests, as `linear[q4_1]`."""
        return self.op.variant(self.inputs)

    @property
    def name(self) -> str:
        """Unique among the cases: `linear[q4_1] many rows (x 67x96, weight 31x96)`."""
        shapes = ", ".join(
            f"{name} {'x'.join(map(str, operand.shape))}" for name, operand in self.inputs.items()
        )
        attributes = ", ".join(f"{k}={v}" for k, v in dataclasses.asdict(self.op).items())
        return (
            f"{self.variant} {self.shape_class} ({'; '.join(filter(None, (attributes, shapes)))})"
        )

    def updated(self) -> list[str]:
        """The inputs that the op changes in place."""
        return [rule.updates for rule in self.op.outputs if rule.updates is not None]

    def outputs(self) -> dict[str, Operand]:
        """The types of the outputs that have memory of their own."""
        in_place = {rule.name for rule in self.op.outputs if rule.updates is not None}
        made = self.op.infer(self.inputs)
        return {name: type_ for name, type_ in made.items() if name not in in_place}

    def operands(self) -> dict[str, Operand]:
        """What a device is asked to lower."""
        return {**self.inputs, **self.outputs()}

    def expected(
        self, stored: Stored, quantized: Mapping[str, Rounding] | None = None
    ) -> dict[str, Array]:
        """What the outputs and the inputs changed in place must hold, in float64 or int32.

        `quantized` tells which operands a kernel rounds first (see `hal.kernel.Lowering`).
        """
        exact = {name: self.values(stored, name) for name in self.inputs}
        op, values = self.op.with_rounded(exact, quantized or {})
        with np.errstate(all="ignore"):  # infinities and NaN are among the inputs
            made = op.compute(values)
        return made | {name: values[name] for name in self.updated()}

    def values(self, stored: Stored, name: str) -> Array:
        """An input's values in float64 (or int32): nothing that the op keeps there is rounded."""
        return _widen(stored[name], self.inputs[name])

    def defined(self, name: str, stored: Stored) -> slice:
        """The part of an output's first dimension that the op's meaning defines: no padding."""
        if "query_start" not in self.inputs:
            return slice(None)
        if self.operands()[name].role is Role.KV_CACHE:
            return slice(PADDING_BLOCK + 1, None)
        return slice(0, int(stored["query_start"][-1]))

    def tolerance(self, name: str) -> Tolerance:
        """How close an output must be: as its op says, or as its storage allows."""
        if self.operands()[name].storage in (DType.F16, DType.BF16):
            return Tolerance.HALF
        return self.op.tolerance


def random_inputs(rng: Random, inputs: Mapping[str, Operand]) -> dict[str, Array]:
    """Random tensors of these types, none of which is int32."""
    return {name: random_stored(rng, kind.storage, kind.shape) for name, kind in inputs.items()}


def _widen(stored: Array, operand: Operand) -> Array:
    if operand.storage is DType.I32:
        return stored
    return dequantize(stored.tobytes(), operand.storage, operand.shape).astype(np.float64)
