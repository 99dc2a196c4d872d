"""Cases of linear, gated_linear, qkv_linear and embed: the ops that decode weights."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.blocks import BLOCK_FORMATS, Q4_K, Q6_K, Q8_0, StorageType
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.op import Op, float32
from crossinfer.graph.ops.embed import Embed
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.qkv_linear import QkvLinear
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.verify.case import Case, random_inputs
from crossinfer.verify.data import Random

STORAGES: tuple[StorageType, ...] = (DType.F32, DType.F16, DType.BF16, *BLOCK_FORMATS, Q8_32)

_ODD_LENGTHS = {1: 33, 2: 67, 3: 129, 5: 257}
"""Row lengths of scalar storages where block formats take so many blocks."""

_HALVES = (DType.F16, DType.BF16)
"""Storages that backends may keep in fewer bits, in rows of lengths as models have them."""

# (T, N, columns)
_HALVES_SIZES = (
    ("single row", 1, 65, 136),
    ("few rows", 3, 33, 264),
    ("many rows", 19, 70, 520),
)

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

# (T, outputs, blocks a row)
_JOINED_SIZES = (
    ("single row", 1, (33, 7), 3),
    ("few rows", 3, (9, 17), 2),
    ("many rows", 19, (17, 6), 1),
)
# (T, storages, operands beside the weights)
_JOINED_OPTIONAL: tuple[tuple[int, tuple[StorageType, ...], tuple[str, ...]], ...] = (
    (1, (Q4_K, Q6_K, Q6_K), ()),
    (2, (DType.F16, Q8_0, DType.F32), ("bias",)),
    (1, (DType.F16, DType.F16, DType.F16), ("norm",)),
    (5, (Q8_0, Q8_0, Q8_0), ("norm", "bias")),
    (1, (Q4_K, Q4_K, Q6_K), ("norm", "bias")),
    (17, (DType.BF16, DType.BF16, DType.BF16), ("norm",)),
)
_MIXED_LENGTH = 512  # whole blocks of every storage

# (T, V, blocks a row)
_EMBED_SIZES = (("single row", 1, 3, 1), ("few rows", 7, 33, 3), ("many rows", 65, 131, 1))


def linear_cases() -> Iterator[Case]:
    for storage in STORAGES:
        for shape_class, rows, size, blocks in _LINEAR_SIZES:
            yield linear_case(storage, shape_class, rows, size, _row_length(storage, blocks))
        if storage in _HALVES:
            for shape_class, rows, size, length in _HALVES_SIZES:
                yield linear_case(storage, shape_class, rows, size, length)
        yield linear_case(storage, "long rows", 3, 9, _LONG)
        for number, optional in enumerate(_OPTIONAL):
            rows = (1, 3, 19)[number % 3]
            yield linear_case(storage, "fused", rows, 17, _row_length(storage, 1), optional)


def gated_linear_cases() -> Iterator[Case]:
    return _joined_cases(GatedLinear, ("gate", "up"))


def qkv_linear_cases() -> Iterator[Case]:
    return _joined_cases(QkvLinear, ("q", "k", "v"))


def embed_cases() -> Iterator[Case]:
    for storage in STORAGES:
        for shape_class, rows, vocabulary, blocks in _EMBED_SIZES:
            table = Operand((vocabulary, _row_length(storage, blocks)), storage, Role.WEIGHT)
            yield _embed(shape_class, rows, table)
        if storage in _HALVES:
            yield _embed("many rows", 65, Operand((131, 520), storage, Role.WEIGHT))
    # The head takes the rows whose logits are wanted from activations.
    yield _embed("rows of activations", 5, float32(11, 65))


def _row_length(storage: StorageType, blocks: int) -> int:
    if isinstance(storage, DType):
        return _ODD_LENGTHS[blocks]
    return blocks * storage.block_elements


def linear_case(
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
    return Case(Linear(), inputs, shape_class, functools.partial(linear_inputs, inputs=inputs))


def _joined_cases(
    op: type[GatedLinear] | type[QkvLinear], parts: tuple[str, ...]
) -> Iterator[Case]:
    """Each storage in all weights; then mixed ones, with biases and a folded norm."""
    for storage in STORAGES:
        for shape_class, rows, sizes, blocks in _JOINED_SIZES:
            length = _row_length(storage, blocks)
            given = dict.fromkeys(parts, storage)
            yield _joined(op, given, shape_class, rows, sizes, length)
        if storage in _HALVES:
            for shape_class, rows, size, length in _HALVES_SIZES:
                yield _joined(op, given, shape_class, rows, (size, 40), length)
    for number, (rows, storages, optional) in enumerate(_JOINED_OPTIONAL):
        length = _MIXED_LENGTH if number % 2 else _MIXED_LENGTH // 2
        mixed = dict(zip(parts, storages, strict=False))
        yield _joined(op, mixed, "fused", rows, (34, 18), length, optional)


def _joined(
    op: type[GatedLinear] | type[QkvLinear],
    storages: dict[str, StorageType],
    shape_class: str,
    rows: int,
    sizes: tuple[int, int],
    length: int,
    optional: tuple[str, ...] = (),
) -> Case:
    """`sizes` are the outputs of q, and of k and v; the first is that of gate and up."""
    inputs = {"x": float32(rows, length)}
    outputs = {name: sizes[name in ("k", "v")] for name in storages}
    for name, storage in storages.items():
        inputs[f"{name}_weight"] = Operand((outputs[name], length), storage, Role.WEIGHT)
    if "bias" in optional:
        inputs |= {f"{name}_bias": float32(size) for name, size in outputs.items()}
    if "norm" in optional:
        inputs["norm_weight"] = float32(length)
    made: Op = op(eps=1e-5 if "norm" in optional else None)
    return Case(made, inputs, shape_class, functools.partial(linear_inputs, inputs=inputs))


def linear_inputs(rng: Random, inputs: Mapping[str, Operand]) -> dict[str, Array]:
    """Operands of a product: weights with rows of norm 1, everything else of elements about 1."""
    made = random_inputs(rng, inputs)
    # Rows have a norm of about 1; these are to be elements of about 1.
    for name, operand in inputs.items():
        if operand.role is not Role.WEIGHT:
            made[name] *= np.float32(operand.shape[-1] ** 0.5)
    if "norm_weight" in inputs:  # what is normalised may have any size
        made["x"] *= (10.0 ** rng.uniform(-2, 4, (len(made["x"]), 1))).astype(np.float32)
    return made


def _embed(shape_class: str, rows: int, table: Operand) -> Case:
    inputs = {"ids": Operand((rows,), DType.I32), "table": table}
    return Case(Embed(), inputs, shape_class, functools.partial(embed_inputs, inputs=inputs))


def embed_inputs(rng: Random, inputs: Mapping[str, Operand]) -> dict[str, Array]:
    """A table, and ids of its rows; some that it lacks, where there are many."""
    vocabulary, rows = inputs["table"].shape[0], inputs["ids"].shape[0]
    ids = rng.integers(0, vocabulary, rows, dtype=np.int32)
    if rows > 4:  # ids that are not in the table, and its ends
        ids[rng.permutation(rows)[:5]] = (-1, vocabulary, np.iinfo(np.int32).max, 0, vocabulary - 1)
    return {"ids": ids, **random_inputs(rng, {"table": inputs["table"]})}
