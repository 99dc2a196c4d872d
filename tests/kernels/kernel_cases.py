"""Cases beyond those of `verify`, so that every shader of the catalog runs at least once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import BlockFormat
from crossinfer.graph.op import float32
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.kernels.weights import STORAGES
from crossinfer.verify.batches import LAYOUTS, Layout
from crossinfer.verify.case import Case, random_inputs
from crossinfer.verify.cases_attention import _attention
from crossinfer.verify.cases_linear import linear_inputs
from crossinfer.verify.cases_rope import _rope_attention

_BLOCKS = 2
_COLUMNS = 128
"""Of scalars: whole units, where the cases of `verify` have odd rows."""
_LONG_COLUMNS = 2336
"""More than linear_vec keeps of x at once, in whole blocks of 32 only."""
_TOKENS = (1, 2, 4, 8, 33, 65)
_OUTPUTS = 203
"""More than a tile, and no multiple of the rows of a team."""

_LONG = Layout(((1, 1100), (2, 900), (1, 20)), 1, 1)
"""Too long for one part of rope_attention."""


def more_linear_cases() -> Iterator[Case]:
    for storage in STORAGES:
        is_blocks = isinstance(storage, BlockFormat)
        columns = _BLOCKS * storage.block_elements if is_blocks else _COLUMNS
        for tokens in _TOKENS:
            yield _linear(tokens, columns, Operand((_OUTPUTS, columns), storage, Role.WEIGHT))
        for tokens in (1, 7, 33):
            length = align_to_blocks(_LONG_COLUMNS, storage.block_elements)
            outputs = _OUTPUTS if tokens == 1 else 21
            yield _linear(tokens, length, Operand((outputs, length), storage, Role.WEIGHT))
        yield _gated_linear(1, length, Operand((_OUTPUTS, length), storage, Role.WEIGHT))
        for tokens in (1, 2, 4, 8):
            yield _gated_linear(tokens, columns, Operand((_OUTPUTS, columns), storage, Role.WEIGHT))
        if not is_blocks:
            for tokens in (2, 8):
                yield _gated_linear(tokens, 67, Operand((9, 67), storage, Role.WEIGHT))


def align_to_blocks(columns: int, block: int) -> int:
    """The nearest whole number of blocks, at least one."""
    return max(1, round(columns / block)) * block


def more_attention_cases() -> Iterator[Case]:
    """Heads of other sizes and ratios; one sequence long enough for many parts."""
    for cache in (DType.F16, DType.F32):
        for heads in ((4, 2, 128), (6, 3, 192), (2, 2, 160)):
            yield _attention("ragged", LAYOUTS["ragged"], heads, cache, None)
        for heads in ((12, 1, 80), (7, 1, 256), (4, 1, 256)):
            yield _attention("long", LAYOUTS["long"], heads, cache, None)
        yield _attention("long", LAYOUTS["long"], (7, 1, 128), cache, 200)
        for interleaved, heads in itertools.product(
            (False, True), ((3, 3, 16), (4, 2, 128), (7, 1, 32))
        ):
            layout = LAYOUTS["decode at block borders"]
            yield _rope_attention("decode", layout, heads, cache, interleaved, None)
        yield _rope_attention("parts", _LONG, (4, 2, 64), cache, False, None)


def more_row_cases() -> Iterator[Case]:
    """Long rows, which take several slices, and a grid of two lines."""
    yield _random(Argmax(), "long rows", x=float32(3, 4096 * 3 + 7))
    for k in (1, 40, 512):
        yield _random(TopK(k), "long rows", x=float32(2, 1024 * 5 + 3))
    large = float32(2, 32768 * 128 + 5)
    yield _random(Swiglu(), "two lines of groups", gate=large, up=large)


def _random(op: Argmax | TopK | Swiglu, shape_class: str, **inputs: Operand) -> Case:
    return Case(op, inputs, shape_class, functools.partial(random_inputs, inputs=inputs))


def _gated_linear(tokens: int, columns: int, weight: Operand) -> Case:
    inputs = {
        "x": float32(tokens, columns),
        "gate_weight": weight,
        "up_weight": weight,
        "norm_weight": float32(columns),
    }
    make = functools.partial(linear_inputs, inputs=inputs)
    return Case(GatedLinear(eps=1e-6), inputs, "kernels", make)


def _linear(tokens: int, columns: int, weight: Operand) -> Case:
    inputs = {"x": float32(tokens, columns), "weight": weight}
    scale = np.float32(columns**0.5)

    def make(rng: np.random.Generator) -> dict[str, np.ndarray]:
        made = random_inputs(rng, inputs)
        return {**made, "x": made["x"] * scale}

    return Case(Linear(), inputs, "kernels", make)
