"""Cases of the ops that work row by row: rms_norm, swiglu, argmax, top_k."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.graph.op import float32
from crossinfer.graph.ops.argmax import Argmax
from crossinfer.graph.ops.rms_norm import RmsNorm
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.graph.ops.top_k import TopK
from crossinfer.verify.case import Case
from crossinfer.verify.data import Random, random_values

# (T, runs a row, run length)
_NORM_SIZES = (
    ("single row", 1, 1, 255),
    ("single row", 1, 1, 1025),
    ("few rows", 5, 1, 256),
    ("few rows", 3, 7, 64),
    ("few rows", 2, 3, 33),
    ("many rows", 67, 1, 257),
    ("many rows", 33, 2, 128),
)
_SWIGLU_SIZES = (
    ("single row", 1, 1),
    ("single row", 1, 257),
    ("few rows", 5, 255),
    ("many rows", 67, 65),
)
_LOGITS_SIZES = (
    ("single row", 1, 1),
    ("single row", 1, 1025),
    ("few rows", 3, 255),
    ("few rows", 5, 256),
    ("many rows", 33, 257),
)
_TOP_K = (
    ("single row", 1, 1, 1),
    ("single row", 1, 1025, 40),
    ("few rows", 3, 255, 1),
    ("few rows", 5, 64, 64),
    ("many rows", 33, 257, 17),
)


def rms_norm_cases() -> Iterator[Case]:
    for residual in (False, True):
        for number, (shape_class, rows, runs, length) in enumerate(_NORM_SIZES):
            inputs = {"x": float32(rows, runs * length), "weight": float32(length)}
            if residual:
                inputs["residual"] = inputs["x"]
            make = functools.partial(
                norm_inputs, rows=rows, runs=runs, length=length, residual=residual
            )
            yield Case(RmsNorm((1e-5, 1e-6)[number % 2]), inputs, shape_class, make)


def swiglu_cases() -> Iterator[Case]:
    for shape_class, rows, size in _SWIGLU_SIZES:
        inputs = {"gate": float32(rows, size), "up": float32(rows, size)}
        make = functools.partial(swiglu_inputs, rows=rows, size=size)
        yield Case(Swiglu(), inputs, shape_class, make)


def argmax_cases() -> Iterator[Case]:
    for shape_class, rows, size in _LOGITS_SIZES:
        make = functools.partial(argmax_inputs, rows=rows, size=size)
        yield Case(Argmax(), {"x": float32(rows, size)}, shape_class, make)


def top_k_cases() -> Iterator[Case]:
    for shape_class, rows, size, k in _TOP_K:
        make = functools.partial(top_k_inputs, rows=rows, size=size)
        yield Case(TopK(k), {"x": float32(rows, size)}, shape_class, make)


def norm_inputs(rng: Random, rows: int, runs: int, length: int, residual: bool) -> dict[str, Array]:
    """Rows from tiny (where eps decides) to large, and a row of zeros where there are several."""
    size = 10.0 ** rng.uniform(-4, 4, (rows, 1))
    if rows > 1:
        size[rng.integers(rows)] = 0
    made = {
        "x": (random_values(rng, rows, runs * length) * size).astype(np.float32),
        "weight": random_values(rng, length),
    }
    if residual:
        made["residual"] = (random_values(rng, rows, runs * length) * size).astype(np.float32)
    return made


def swiglu_inputs(rng: Random, rows: int, size: int) -> dict[str, Array]:
    """Gates from the middle to where the exponential overflows float32, on both sides.

    Each row keeps one of the middle: errors are relative to a row's largest element.
    """
    gate = random_values(rng, rows, size) * np.float32(2)
    far = rng.random((rows, size)) < 0.1
    far[:, 0] = False
    gate[far] *= np.float32(60)
    return {"gate": gate, "up": random_values(rng, rows, size)}


def _ties(rng: Random, rows: int, size: int) -> Array:
    """Few different values, so that the largest and the k-th occur several times."""
    return np.round(random_values(rng, rows, size) * 4) / np.float32(4)


def argmax_inputs(rng: Random, rows: int, size: int) -> dict[str, Array]:
    """Ties and masked elements; rows without an answer where there are several."""
    x = _ties(rng, rows, size)
    x[rng.random((rows, size)) < 0.2] = -np.inf
    x[:, rng.integers(size)] = rng.integers(-8, 9, rows) / 4  # each row keeps a finite element
    if rows > 2:
        bad = rng.permutation(rows)
        x[bad[0], rng.integers(size)] = np.nan
        x[bad[1]] = -np.inf
        x[bad[2], rng.integers(size)] = np.inf
    return {"x": x}


def top_k_inputs(rng: Random, rows: int, size: int) -> dict[str, Array]:
    """Ties and masked elements."""
    x = _ties(rng, rows, size)
    x[rng.random((rows, size)) < 0.2] = -np.inf
    return {"x": x}
