"""Random weights that are the same everywhere: any platform, NumPy version, container.

Values come from PCG64's raw stream, which NumPy promises to keep, through exact operations and one
rounding. Each tensor has a stream of its own, from the seed and its name.

A large matrix is composed: each row is a sequence of blocks of 256 values, chosen at random from
8,192 of them, which are encoded once. So a model of several gigabytes is written at the speed of
copying, every storage type holds an encoding of the same values, and no two rows are alike.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Iterator

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.core.shapes import ceil_div
from crossinfer.formats.blocks import StorageType
from crossinfer.testing.quantize import quantize

_POOL_BLOCKS = 8192
_POOL_COLS = 256
# Matrices of up to so many elements are drawn value by value.
_DIRECT_ELEMENTS = 1 << 18
_CHUNK_BYTES = 1 << 25


def _raw(seed: int, name: str, count: int) -> Array:
    """`count` random uint32 of the stream of (seed, name)."""
    entropy = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    words = np.random.PCG64(entropy).random_raw(ceil_div(count, 2))
    return words.astype("<u8").view("<u4")[:count]


def uniform(seed: int, name: str, count: int, std: float) -> Array:
    """`count` float32 values, uniform around 0 with standard deviation `std`."""
    odd = 2 * (_raw(seed, name, count) >> np.uint32(8)).astype(np.int32) - ((1 << 24) - 1)
    return odd.astype(np.float32) * np.float32(std * math.sqrt(3) / (1 << 24))


def near_one(seed: int, name: str, count: int) -> Array:
    """`count` float32 values between 0.75 and 1.25 that float16 and bfloat16 hold exactly."""
    return (_raw(seed, name, count) % np.uint32(65) + np.float32(96)).astype(np.float32) / 128


def biases(seed: int, name: str, count: int) -> Array:
    """`count` float32 values between -0.63 and 0.63, none of them 0, exact in bfloat16."""
    steps = (_raw(seed, name, count) % np.uint32(80)).astype(np.int32) - 40
    return (steps + (steps >= 0)).astype(np.float32) / 64


def encode_rows(values: Array, storage: StorageType) -> Array:
    """float32 [rows, cols] as the bytes that store it, uint8 [rows, bytes of a row]."""
    if isinstance(storage, DType):
        return encode_scalars(values, storage).view(np.uint8)
    return quantize(values, storage)


@functools.lru_cache(maxsize=4)
def _encoded_pool(seed: int, std: float, storage: StorageType) -> Array:
    """The blocks that large matrices are made of, uint8 [8192, bytes of 256 values]."""
    values = uniform(seed, "pool", _POOL_BLOCKS * _POOL_COLS, std)
    return encode_rows(values.reshape(_POOL_BLOCKS, _POOL_COLS), storage)


@dataclasses.dataclass(frozen=True, eq=False)
class RandomMatrix:
    """A matrix [rows, cols] of the stream (seed, name) with standard deviation `std`."""

    seed: int
    name: str
    rows: int
    cols: int
    std: float

    def encoded(self, storage: StorageType, order: Array | None = None) -> Iterator[Array]:
        """Its rows' bytes in `storage`, in chunks of uint8 [some rows, bytes of a row].

        `order` lists the rows in the order to give them in (default: as they are).
        """
        order = np.arange(self.rows) if order is None else order
        if self.rows * self.cols <= _DIRECT_ELEMENTS:
            values = uniform(self.seed, self.name, self.rows * self.cols, self.std)
            yield encode_rows(values.reshape(self.rows, self.cols)[order], storage)
            return
        pool = _encoded_pool(self.seed, self.std, storage)
        units = ceil_div(self.cols, _POOL_COLS)
        chosen = _raw(self.seed, self.name, self.rows * units) % np.uint32(_POOL_BLOCKS)
        chosen = chosen.reshape(self.rows, units)[order]
        row_bytes = storage.bytes_for((self.cols,))
        step = max(1, _CHUNK_BYTES // row_bytes)
        for start in range(0, self.rows, step):
            rows = pool[chosen[start : start + step]]
            yield rows.reshape(len(rows), -1)[:, :row_bytes]
