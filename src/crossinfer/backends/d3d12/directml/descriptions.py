"""The operators: what each computes, its tensors in the order of binding, its DML_OPERATOR_DESC."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from crossinfer.backends.d3d12.directml import structures as dml
from crossinfer.backends.d3d12.directml.constants import (
    MATRIX_TRANSFORM_NONE,
    MATRIX_TRANSFORM_TRANSPOSE,
    OperatorType,
)
from crossinfer.backends.d3d12.directml.tensors import Tensor
from crossinfer.core.dtypes import Array
from crossinfer.core.errors import InvalidUse

_TRANSFORMS = {False: MATRIX_TRANSFORM_NONE, True: MATRIX_TRANSFORM_TRANSPOSE}


class Description(Protocol):
    """An operator with exact shapes. Equal descriptions are the same operator."""

    family: ClassVar[str]

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """In the order of binding; None where an optional one is left out: it is bound as none.

        DirectML takes a wrong number of bindings for a reason to remove the device.
        """

    @property
    def output(self) -> Tensor: ...

    @property
    def shape(self) -> str:
        """What verdicts tell operators of one family and type apart by."""

    def native(self) -> Any:
        """The DML_OPERATOR_DESC."""

    def compute(self, inputs: Sequence[Array]) -> Array:
        """The meaning, in float64, of the inputs that are there."""


def name_of(description: Description) -> str:
    """The kernel's name, as `directml_gemm[f32]`."""
    return f"directml_{description.family}[{description.output.dtype.label}]"


class Activation(enum.Enum):
    """What may follow a GEMM in the same operator. DirectML knows more; these are used."""

    RELU = "RELU"
    SIGMOID = "SIGMOID"
    TANH = "TANH"

    def native(self) -> Any:
        """The DML_OPERATOR_DESC of a fused activation: one without tensors."""
        description = getattr(dml, f"DML_ACTIVATION_{self.value}_OPERATOR_DESC")()
        return dml.DML_OPERATOR_DESC(
            Type=OperatorType[f"ACTIVATION_{self.value}"], Desc=description
        )

    def compute(self, x: Array) -> Array:
        return _ACTIVATIONS[self](x)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    Activation.RELU: _relu,
    Activation.SIGMOID: _sigmoid,
    Activation.TANH: np.tanh,
}


@dataclasses.dataclass(frozen=True)
class Gemm:
    """output = activation(a · b + c), a and b transposed as asked; M x K times K x N.

    All tensors have one type. `c` may repeat one row, which makes it a bias.
    """

    a: Tensor
    b: Tensor
    output: Tensor
    c: Tensor | None = None
    transpose_a: bool = False
    transpose_b: bool = False
    activation: Activation | None = None
    family: ClassVar[str] = "gemm"

    def __post_init__(self) -> None:
        m, k = _size(self.a, self.transpose_a)
        k_of_b, n = _size(self.b, self.transpose_b)
        good = k == k_of_b and _size(self.output) == (m, n)
        good = good and (self.c is None or _size(self.c) == (m, n))
        _require(good, self, "a[M, K] · b[K, N] + c[M, N] → output[M, N]")

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return (self.a, self.b, self.c)

    @property
    def shape(self) -> str:
        return f"{self.output.rows}x{self.inner}x{self.output.columns}"

    @property
    def inner(self) -> int:
        """K"""
        return _size(self.a, self.transpose_a)[1]

    def native(self) -> Any:
        description = dml.DML_GEMM_OPERATOR_DESC(
            ATensor=self.a.native(),
            BTensor=self.b.native(),
            CTensor=self.c and self.c.native(),
            OutputTensor=self.output.native(),
            TransA=_TRANSFORMS[self.transpose_a],
            TransB=_TRANSFORMS[self.transpose_b],
            Alpha=1,
            Beta=0 if self.c is None else 1,
            FusedActivation=self.activation and self.activation.native(),
        )
        return dml.DML_OPERATOR_DESC(Type=OperatorType.GEMM, Desc=description)

    def compute(self, inputs: Sequence[Array]) -> Array:
        a, b, *c = (values.astype(np.float64) for values in inputs)
        y = (a.T if self.transpose_a else a) @ (b.T if self.transpose_b else b)
        y = y + c[0] if c else y
        return self.activation.compute(y) if self.activation else y


@dataclasses.dataclass(frozen=True)
class Softmax:
    """output = softmax of each row of x."""

    x: Tensor
    output: Tensor
    family: ClassVar[str] = "softmax"

    def __post_init__(self) -> None:
        _require(_size(self.x) == _size(self.output), self, "x[M, N] → output[M, N]")

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return (self.x,)

    @property
    def shape(self) -> str:
        return f"{self.output.rows}x{self.output.columns}"

    def native(self) -> Any:
        return _one_input(OperatorType.ACTIVATION_SOFTMAX, self.x, self.output)

    def compute(self, inputs: Sequence[Array]) -> Array:
        x = inputs[0].astype(np.float64)
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        total: Array = powers / powers.sum(axis=1, keepdims=True)
        return total


@dataclasses.dataclass(frozen=True)
class Cast:
    """output = x in the output's type."""

    x: Tensor
    output: Tensor
    family: ClassVar[str] = "cast"

    def __post_init__(self) -> None:
        if _size(self.x) != _size(self.output):
            raise InvalidUse("DirectML's cast takes x[M, N] → output[M, N].")

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return (self.x,)

    @property
    def shape(self) -> str:
        return f"{self.output.rows}x{self.output.columns}"

    def native(self) -> Any:
        return _one_input(OperatorType.CAST, self.x, self.output)

    def compute(self, inputs: Sequence[Array]) -> Array:
        return inputs[0].astype(np.float64)


@dataclasses.dataclass(frozen=True)
class _Elementwise:
    """a and b, of which one may repeat one row, element by element."""

    a: Tensor
    b: Tensor
    output: Tensor
    family: ClassVar[str]
    operator: ClassVar[OperatorType]
    function: ClassVar[np.ufunc]

    def __post_init__(self) -> None:
        fits = _size(self.a) == _size(self.b) == _size(self.output)
        _require(fits, self, "a[M, N] and b[M, N] → output[M, N]")

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return (self.a, self.b)

    @property
    def shape(self) -> str:
        return f"{self.output.rows}x{self.output.columns}"

    def native(self) -> Any:
        made = getattr(dml, f"DML_{self.operator.name}_OPERATOR_DESC")(
            ATensor=self.a.native(), BTensor=self.b.native(), OutputTensor=self.output.native()
        )
        return dml.DML_OPERATOR_DESC(Type=self.operator, Desc=made)

    def compute(self, inputs: Sequence[Array]) -> Array:
        a, b = (values.astype(np.float64) for values in inputs)
        result: Array = self.function(a, b)
        return result


class Add(_Elementwise):
    """output = a + b"""

    family = "add"
    operator = OperatorType.ELEMENT_WISE_ADD
    function = np.add


class Multiply(_Elementwise):
    """output = a · b"""

    family = "multiply"
    operator = OperatorType.ELEMENT_WISE_MULTIPLY
    function = np.multiply


def _size(tensor: Tensor, transposed: bool = False) -> tuple[int, int]:
    size = tensor.rows, tensor.columns
    return size[::-1] if transposed else size


def _require(shapes_fit: bool, operator: Description, rule: str) -> None:
    given = [tensor for tensor in operator.inputs if tensor is not None]
    same_type = all(tensor.dtype is operator.output.dtype for tensor in given)
    writes_each_once = operator.output.row_stride >= operator.output.columns
    if not (shapes_fit and same_type and writes_each_once):
        raise InvalidUse(
            f"DirectML's {operator.family} takes {rule} of one type, and got {given} → "
            f"{operator.output}."
        )


def _one_input(operator: OperatorType, x: Tensor, output: Tensor) -> Any:
    name = f"DML_{operator.name}_OPERATOR_DESC"
    description = getattr(dml, name)(InputTensor=x.native(), OutputTensor=output.native())
    return dml.DML_OPERATOR_DESC(Type=operator, Desc=description)
