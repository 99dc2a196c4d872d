"""Weights that are larger than what a dispatch can see, taken in ranges of rows.

A range starts at a multiple of 64 rows, so that the bytes where its part of the weight and its
columns of a float32 result start are multiples of the alignment of views.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import format_bytes
from crossinfer.formats.blocks import StorageType
from crossinfer.graph.op import Operands
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Argument, LoweredDispatch, Lowering, OpDescription, Operand
from crossinfer.kernels.dispatching import Capabilities, MakeKernel
from crossinfer.kernels.layout import row_bytes, weight_bytes
from crossinfer.kernels.linear import lower_linear
from crossinfer.kernels.row_ops import lower_embed

ROW_STEP = 64


def view_bytes(operand: Operand) -> int:
    """What a dispatch has to see of an operand."""
    if operand.role is Role.WEIGHT:
        return weight_bytes(operand.shape, operand.storage)
    return operand.storage.bytes_for(operand.shape)


def range_bytes(columns: int, storage: StorageType, max_view_bytes: int) -> int:
    """Bytes of a range of a weight's rows; 0 if not even the smallest range can be seen."""
    step = ROW_STEP * row_bytes(columns, storage)
    return max_view_bytes // step * step


def why_too_large(op: OpDescription, operands: Operands, capabilities: Capabilities) -> str:
    """Which operand of `op` cannot be seen, where that is why it has no lowering; else empty."""
    most = capabilities.max_view_bytes
    large = [name for name, operand in operands.items() if view_bytes(operand) > most]
    if not large:
        return ""
    size = format_bytes(view_bytes(operands[large[0]]))
    return f"{op.name} has to see {size} of {large[0]} at once, more than {format_bytes(most)}"


def lower_in_ranges(
    op: OpDescription,
    operands: Operands,
    large: Set[str],
    capabilities: Capabilities,
    make_kernel: MakeKernel,
) -> Sequence[Lowering]:
    """The ways to run `op`, of whose operands those in `large` cannot be seen at once.

    None for ops other than linear and embed, and if anything but the weight is too large.
    """
    name = "weight" if isinstance(op, Linear) else "table"
    if (
        not isinstance(op, Linear | Embed)
        or large != {name}
        or operands[name].role is not Role.WEIGHT
    ):
        return ()
    weight = operands[name]
    columns, count = weight.shape[1], weight.shape[0]
    size = range_bytes(columns, weight.storage, capabilities.max_view_bytes)
    if size == 0:
        return ()
    step = size // row_bytes(columns, weight.storage)
    ranges = [range(start, min(count, start + step)) for start in range(0, count, step)]
    if isinstance(op, Embed):
        parts = [
            [_moved(lower_embed(operands, make_kernel, rows), name, weight, rows)]
            for rows in ranges
        ]
    else:
        parts = [_linear(operands, rows, capabilities, make_kernel) for rows in ranges]
    # The ways of all ranges are the same but for their sizes.
    return [_joined(ways) for ways in zip(*parts, strict=False)]


def _linear(
    operands: Operands, rows: range, capabilities: Capabilities, make_kernel: MakeKernel
) -> list[Lowering]:
    """The ways to compute the columns `rows` of the result."""
    weight = operands["weight"]
    part = dataclasses.replace(weight, shape=(len(rows), weight.shape[1]))
    ways = lower_linear({**operands, "weight": part}, capabilities, make_kernel)
    return [_moved(way, "weight", weight, rows) for way in ways]


def _moved(lowering: Lowering, name: str, weight: Operand, rows: range) -> Lowering:
    """The lowering with its views on a range of the weight's rows.

    Of linear, that is a range of the columns of everything else but x.
    """
    size = row_bytes(weight.shape[1], weight.storage)
    columns = rows.start * DType.F32.block_bytes

    def moved(argument: Argument) -> Argument:
        if argument.operand == name:
            return dataclasses.replace(argument, offset=rows.start * size, size=len(rows) * size)
        if name == "table" or argument.operand == "x" or argument.operand in lowering.scratch:
            return argument
        return dataclasses.replace(argument, offset=columns)

    runs = [
        dataclasses.replace(run, arguments=tuple(map(moved, run.arguments)))
        for run in lowering.dispatches
    ]
    return dataclasses.replace(lowering, dispatches=tuple(runs))


def _joined(ways: Sequence[Lowering]) -> Lowering:
    """One after another, in the same scratch memory."""
    runs: list[LoweredDispatch] = [run for way in ways for run in way.dispatches]
    scratch: dict[str, int] = {}
    for way in ways:
        for name, size in way.scratch.items():
            scratch[name] = max(size, scratch.get(name, 0))
    return dataclasses.replace(ways[0], dispatches=tuple(runs), scratch=scratch)
