"""Cases of linear and embed: the ops that decode weights."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.op import float32
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.case import Case, random_inputs
from crossinfer.verify.data import Random

STORAGES: tuple[StorageType, ...] = (DType.F32, DType.F16, DType.BF16, *BLOCK_FORMATS, Q8_32)

_ODD_LENGTHS = {1: 33, 2: 67, 3: 129, 5: 257}
"""Row lengths of scalar storages where block formats take so many blocks."""

# (T, N, blocks a row)
_LINEAR_SIZES = (
    ("single row", 1, 65, 1),
    ("single row", 1, 33, 5),
    ("few rows", 2, 17, 3),
    ("few rows", 5, 64, 2),
    ("few rows", 15, 9, 1),
    ("many rows", 16, 63, 3),
    ("many rows", 17, 32, 1),
    ("many rows", 64, 31, 2),
    ("many rows", 67, 5, 3),
)
_OPTIONAL = (
    ("bias",),
    ("gate",),
    ("residual",),
    ("bias", "residual"),
    ("bias", "gate", "residual"),
)
_LONG = 4096

# (T, V, blocks a row)
_EMBED_SIZES = (("single row", 1, 3, 1), ("few rows", 7, 33, 3), ("many rows", 65, 131, 1))


def linear_cases() -> Iterator[Case]:
    for storage in STORAGES:
        for shape_class, rows, size, blocks in _LINEAR_SIZES:
            yield _linear(storage, shape_class, rows, size, _row_length(storage, blocks))
        yield _linear(storage, "long rows", 3, 9, _LONG)
        for number, optional in enumerate(_OPTIONAL):
            rows = (1, 3, 19)[number % 3]
            yield _linear(storage, "fused", rows, 17, _row_length(storage, 1), optional)


def embed_cases() -> Iterator[Case]:
    for storage in STORAGES:
        for shape_class, rows, vocabulary, blocks in _EMBED_SIZES:
            table = Operand((vocabulary, _row_length(storage, blocks)), storage, Role.WEIGHT)
            yield _embed(shape_class, rows, table)
    # The head takes the rows whose logits are wanted from activations.
    yield _embed("rows of activations", 5, float32(11, 65))


def _row_length(storage: StorageType, blocks: int) -> int:
    if isinstance(storage, DType):
        return _ODD_LENGTHS[blocks]
    return blocks * storage.block_elements


def _linear(
    storage: StorageType,
    shape_class: str,
    rows: int,
    size: int,
    length: int,
    optional: tuple[str, ...] = (),
) -> Case:
    extra = {"bias": float32(size), "gate": float32(rows, size), "residual": float32(rows, size)}
    inputs = {
        "x": float32(rows, length),
        "weight": Operand((size, length), storage, Role.WEIGHT),
    } | {name: extra[name] for name in optional}
    return Case(Linear(), inputs, shape_class, functools.partial(_linear_inputs, inputs=inputs))


def _linear_inputs(rng: Random, inputs: dict[str, Operand]) -> dict[str, Array]:
    made = random_inputs(rng, inputs)
    # Rows have a norm of about 1; these are to be elements of about 1.
    for name in made.keys() - {"weight"}:
        made[name] *= np.float32(inputs[name].shape[-1] ** 0.5)
    return made


def _embed(shape_class: str, rows: int, table: Operand) -> Case:
    inputs = {"ids": Operand((rows,), DType.I32), "table": table}
    return Case(Embed(), inputs, shape_class, functools.partial(_embed_inputs, inputs=inputs))


def _embed_inputs(rng: Random, inputs: dict[str, Operand]) -> dict[str, Array]:
    vocabulary, rows = inputs["table"].shape[0], inputs["ids"].shape[0]
    ids = rng.integers(0, vocabulary, rows, dtype=np.int32)
    if rows > 4:  # ids that are not in the table, and its ends
        ids[rng.permutation(rows)[:5]] = (-1, vocabulary, np.iinfo(np.int32).max, 0, vocabulary - 1)
    return {"ids": ids, **random_inputs(rng, {"table": inputs["table"]})}
