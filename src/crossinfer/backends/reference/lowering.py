"""Every op becomes one dispatch of the kernel that is its meaning."""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.backends.reference.kernels import ReferenceKernel
from crossinfer.graph.op import Op
from crossinfer.hal.kernel import Kernel, LoweredDispatch, Lowering, Operand


def lower(op: Op, operands: Mapping[str, Operand]) -> Lowering:
    """One dispatch over all operands."""
    kernel = Kernel(op.variant(operands), ReferenceKernel(op, tuple(operands.items())))
    return Lowering((LoweredDispatch(kernel, op.arguments(operands)),))
