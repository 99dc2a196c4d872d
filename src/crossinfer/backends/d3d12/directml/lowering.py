"""linear by DirectML's operators: a GEMM over the weight where it lies, rows padded as ours are.

    f32     output = x · weightᵀ + c                    c is the bias or the residual; with both of
                                                        them the residual is added by an add
    f16     x → f16, product in f16, product → f32, then adds for bias and residual

A product in f16 holds no number beyond 65504, and x is rounded to f16: that is what DirectML offers
for a weight of f16. A gate, weights of other types, and views that DirectML cannot describe are
left to our kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossinfer.backends.d3d12.directml.descriptions import Add, Cast, Description, Gemm
from crossinfer.backends.d3d12.directml.session import Session
from crossinfer.backends.d3d12.directml.tensors import Tensor, dense
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse, KernelUnsupported
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Access, Role
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.kernels.layout import row_bytes

_INPUTS = {"x", "weight", "bias", "residual", "output"}


def lower_by_directml(
    session: Session, op: OpDescription, operands: Mapping[str, Operand]
) -> Sequence[Lowering]:
    """At most one way; none for what no operator can do, or the driver cannot compile."""
    if not isinstance(op, Linear) or not operands.keys() <= _INPUTS:
        return ()
    weight = operands["weight"]
    if weight.role is not Role.WEIGHT or weight.storage not in (DType.F32, DType.F16):
        return ()
    storage = weight.storage
    if not session.supports(DType.F32) or not session.supports(storage):
        return ()
    try:
        steps = _Steps(session)
        if storage is DType.F32:
            _product_in_f32(steps, operands)
        else:
            _product_in_f16(steps, operands)
    except (InvalidUse, KernelUnsupported):
        return ()
    return (steps.lowering(in_half=storage is DType.F16),)


class _Steps:
    """Dispatches one after another, with the scratch memory between them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._dispatches: list[LoweredDispatch] = []
        self._scratch: dict[str, int] = {}

    def run(self, description: Description, reads: Sequence[str], target: str) -> None:
        """Raises KernelUnsupported."""
        kernel = self._session.kernel(description)
        arguments = [Argument(name, Access.READ) for name in reads]
        arguments.append(Argument(target, Access.WRITE))
        temporary = self._session.operator(description).temporary_bytes
        if temporary:
            name = f"directml temporary {len(self._dispatches)}"
            self._scratch[name] = temporary
            arguments.append(Argument(name, Access.READ_WRITE))
        self._dispatches.append(LoweredDispatch(kernel, tuple(arguments)))

    def scratch(self, name: str, tensor: Tensor) -> str:
        """Memory for a tensor between two dispatches."""
        self._scratch[name] = tensor.size_in_bytes
        return name

    def lowering(self, *, in_half: bool) -> Lowering:
        return Lowering(tuple(self._dispatches), self._scratch, in_half=in_half)


def _product_in_f32(steps: _Steps, operands: Mapping[str, Operand]) -> None:
    x, output = (dense(DType.F32, operands[name].shape) for name in ("x", "output"))
    follow = [name for name in ("bias", "residual") if name in operands]
    c = _following(follow[0], output) if follow else None
    gemm = Gemm(x, _weight(operands), output, c, transpose_b=True)
    if len(follow) < 2:
        steps.run(gemm, ("x", "weight", *follow), "output")
        return
    product = steps.scratch("directml product", output)
    steps.run(gemm, ("x", "weight", "bias"), product)
    steps.run(Add(output, output, output), (product, "residual"), "output")


def _product_in_f16(steps: _Steps, operands: Mapping[str, Operand]) -> None:
    x, output = (dense(DType.F32, operands[name].shape) for name in ("x", "output"))
    half_x, half_output = (dense(DType.F16, operands[name].shape) for name in ("x", "output"))
    rounded = steps.scratch("directml x", half_x)
    product = steps.scratch("directml product", half_output)
    steps.run(Cast(x, half_x), ("x",), rounded)
    gemm = Gemm(half_x, _weight(operands), half_output, transpose_b=True)
    steps.run(gemm, (rounded, "weight"), product)
    follow = [name for name in ("bias", "residual") if name in operands]
    targets = [steps.scratch(f"directml sum {n}", output) for n in range(len(follow))]
    targets.append("output")
    steps.run(Cast(half_output, output), (product,), targets[0])
    for number, name in enumerate(follow):
        add = Add(output, _following(name, output), output)
        steps.run(add, (targets[number], name), targets[number + 1])


def _weight(operands: Mapping[str, Operand]) -> Tensor:
    """As our packing lays it out: rows whole and in order, each padded."""
    storage = operands["weight"].storage
    assert isinstance(storage, DType)
    N, K = operands["weight"].shape
    return Tensor(storage, N, K, row_bytes(K, storage) // storage.block_bytes)


def _following(name: str, output: Tensor) -> Tensor:
    """bias is one row for all of the output's; residual has as many."""
    if name == "residual":
        return output
    return Tensor(output.dtype, output.rows, output.columns, 0)
