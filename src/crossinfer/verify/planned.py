"""Cases from a plan: an op at the plan's formats and shapes, made small where the kernels allow it.

A kernel is judged on a case that lowers to it. Most sizes decide only how often its inner loops
run, so a case takes the plan's rows, head counts and tables, which decide how the work is cut, and
a few hundred of its columns. A case that lowers to other kernels than the plan's is no use; then
the next larger one is tried, at last the plan's own shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crossinfer.graph.batch import BLOCK_TOKENS
from crossinfer.graph.op import Op, Operands
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.attention import Attention
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.rope_attention import RopeAttention
from crossinfer.graph.ops.rope_kv import RopeKv
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering, Operand
from crossinfer.verify.batches import Layout
from crossinfer.verify.case import Case, Make
from crossinfer.verify.cases import cases_of
from crossinfer.verify.cases_attention import attention_inputs
from crossinfer.verify.cases_linear import embed_inputs, linear_inputs
from crossinfer.verify.cases_rope import rope_attention_inputs, rope_inputs
from crossinfer.verify.cases_rows import argmax_inputs, norm_inputs, swiglu_inputs, top_k_inputs
from crossinfer.verify.repeated import repeated_rows

_COLUMNS = 512
"""A case keeps a size up to this, and beyond takes what is left over of it more than this."""
_LOGITS_ROWS = 2
_LONG_CACHE = 300
"""Tokens before a step's, where it has few rows."""
_SHORT_CACHE = 40
_MANY_ROWS = 8


class PlannedCase(NamedTuple):
    """A case, and the way to run it that has the plan's kernels."""

    case: Case
    lowering: Lowering


def planned_case(
    device: Device, op: Op, inputs: Operands, kernels: tuple[str, ...], *, exact: bool = False
) -> PlannedCase | None:
    """The smallest case of `op` that `device` lowers to `kernels`; None if there is none.

    `inputs` are the types that the plan has; `exact` keeps their shapes, but for a KV cache, which
    has no more blocks than the case needs. Raises the device's errors.
    """
    maker = _MAKERS.get(type(op))
    # What is too large for one view is cut into several runs of a kernel, so each counts once.
    wanted = dict.fromkeys(kernels)
    cases = _table_cases(op, inputs) if maker is None else maker(op, inputs, exact)
    for case in cases:
        for lowering in device.lower(op, case.operands()):
            if dict.fromkeys(lowering.kernel_names) == wanted:
                return PlannedCase(case, lowering)
    return None


def _table_cases(op: Op, inputs: Operands) -> Iterator[Case]:
    """Cases of the table, for an op that has no maker here."""
    return (case for case in cases_of(op.variant(inputs)) if case.op == op)


def _products(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    """linear and what is joined of it: few outputs, then few columns, then all."""
    if not exact:
        for shorter, narrower in ((True, True), (True, False), (False, True)):
            small = {
                name: _resized(name, operand, shorter, narrower) for name, operand in inputs.items()
            }
            yield _case(op, small, functools.partial(linear_inputs, inputs=small))
    yield repeated_rows(op, inputs)


def _resized(name: str, operand: Operand, shorter: bool, narrower: bool) -> Operand:
    """An operand with fewer outputs N (its last dimension, or a weight's first) or columns K."""
    *rest, last = operand.shape
    if operand.role is Role.WEIGHT:
        rest = [_outputs(size) if narrower else size for size in rest]
        last = _few(last) if shorter else last
    elif name in ("x", "norm_weight"):
        last = _few(last) if shorter else last
    elif narrower:
        last = _outputs(last)
    return Operand((*rest, last), operand.storage, operand.role)


def _few(size: int) -> int:
    """A size of the same remainder, since that is what kernels have tails for."""
    return size if size <= 2 * _COLUMNS else _COLUMNS + size % _COLUMNS


def _outputs(size: int) -> int:
    return size if size <= 256 else 128 + size % 128


def _embeds(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    table = inputs["table"]
    rows, columns = table.shape
    shapes = [(rows, columns)] if exact else [(_few(rows), _few(columns)), (_few(rows), columns)]
    for shape in shapes:
        small = {**inputs, "table": Operand(shape, table.storage, table.role)}
        yield _case(op, small, functools.partial(embed_inputs, inputs=small))


def _norms(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    del exact  # the length of a run decides how it is cut, and all rows together are not many
    rows, columns = inputs["x"].shape
    length = inputs["weight"].shape[0]
    residual = "residual" in inputs
    make = functools.partial(
        norm_inputs, rows=rows, runs=columns // length, length=length, residual=residual
    )
    yield _case(op, inputs, make)


def _swiglus(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    rows, columns = inputs["gate"].shape
    for size in (columns,) if exact else (_few(columns), columns):
        small = _with_rows(inputs, rows, size)
        yield _case(op, small, functools.partial(swiglu_inputs, rows=rows, size=size))


def _argmaxes(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    rows, columns = inputs["x"].shape
    rows = rows if exact else min(rows, _LOGITS_ROWS)
    small = _with_rows(inputs, rows, columns)
    yield _case(op, small, functools.partial(argmax_inputs, rows=rows, size=columns))


def _top_ks(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    rows, columns = inputs["x"].shape
    rows = rows if exact else min(rows, _LOGITS_ROWS)
    small = _with_rows(inputs, rows, columns)
    yield _case(op, small, functools.partial(top_k_inputs, rows=rows, size=columns))


def _with_rows(inputs: Operands, rows: int, columns: int) -> dict[str, Operand]:
    return {name: Operand((rows, columns), o.storage, o.role) for name, o in inputs.items()}


def _attentions(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    del exact  # shapes are the plan's anyway
    layout = batch_layout(inputs)
    small = {**inputs, "cache": _cut_cache(inputs["cache"], layout)}
    make = functools.partial(
        attention_inputs, layout=layout, width=inputs["q"].shape[1], cache=small["cache"]
    )
    yield _case(op, small, make)


def _ropes(op: Op, inputs: Operands, exact: bool) -> Iterator[Case]:
    layout = batch_layout(inputs)
    table = inputs["table"]
    positions = max(length for _, length in layout.sequences)
    if exact:
        positions = max(positions, table.shape[0])
    small = {
        **inputs,
        "cache": _cut_cache(inputs["cache"], layout),
        "table": Operand((positions, *table.shape[1:]), table.storage, table.role),
    }
    inputs_of = rope_attention_inputs if isinstance(op, RopeAttention) else rope_inputs
    yield _case(op, small, functools.partial(inputs_of, layout=layout, inputs=small))


def batch_layout(inputs: Operands) -> Layout:
    """A batch of the plan's rows, sequences and table, one of each padding where there are many.

    Sequences hold a few tokens more than they have rows here, the first of few rows many more.
    """
    rows, (slots, columns) = inputs["q"].shape[0], inputs["block_table"].shape
    padding_rows, padding_sequences = int(rows > 2), int(slots > 1)
    if rows > (slots - 1) * columns * BLOCK_TOKENS:  # then every sequence is needed
        padding_sequences = 0
    count = min(slots - padding_sequences, rows - padding_rows)
    share, left = divmod(rows - padding_rows, count)
    before = _LONG_CACHE if rows <= _MANY_ROWS else _SHORT_CACHE
    sequences = []
    for number in range(count):
        own = share + (number < left)
        length = own + (before if number == 0 else _SHORT_CACHE * number % (2 * BLOCK_TOKENS))
        sequences.append((own, min(length, columns * BLOCK_TOKENS)))
    return Layout(tuple(sequences), padding_rows, slots - count, columns)


def _cut_cache(cache: Operand, layout: Layout) -> Operand:
    return Operand((layout.kv_blocks, *cache.shape[1:]), cache.storage, cache.role)


def _case(op: Op, inputs: Operands, make: Make) -> Case:
    return Case(op, inputs, "planned", make)


_Maker = Callable[[Op, Operands, bool], Iterator[Case]]

# Ops that are missing here are verified on the cases of the table that have the plan's kernels.
_MAKERS: dict[type[Op], _Maker] = {
    Linear: _products,
    GatedLinear: _products,
    QkvLinear: _products,
    Embed: _embeds,
    RmsNorm: _norms,
    Swiglu: _swiglus,
    Argmax: _argmaxes,
    TopK: _top_ks,
    Attention: _attentions,
    RopeKv: _ropes,
    RopeAttention: _ropes,
}
