"""Random tensors in their storage."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.formats.blocks import BlockFormat, StorageType, SuperScales

Random = np.random.Generator


def random_values(rng: Random, *shape: int) -> Array:
    """float32 of normal distribution."""
    return rng.standard_normal(shape, dtype=np.float32)


def random_stored(rng: Random, storage: StorageType, shape: Sequence[int]) -> Array:
    """A tensor as it lies in a file: an array whose bytes are the storage.

    Rows have a norm of about 1, so that a product with a normal vector is about 1 whatever its
    length, and what is added to it can neither hide it nor hide in it.
    """
    if isinstance(storage, DType):
        values = random_values(rng, *shape) * np.float32(1 / math.sqrt(shape[-1]))
        if storage in (DType.F16, DType.BF16):
            values = _as_in_checkpoints(rng, values)
        return encode_scalars(values, storage)
    return _random_blocks(rng, storage, shape)


def _as_in_checkpoints(rng: Random, values: Array) -> Array:
    """Most runs of 32 rows as bfloat16 has them, with a few zeros and numbers far from the others.

    A backend may keep such weights in fewer bits; but not the other runs, of many zeros.
    """
    rows = values.reshape(-1, values.shape[-1])
    for start in range(0, len(rows), _RUN_ROWS):
        run = rows[start : start + _RUN_ROWS]
        if rng.random() < _SHARE_OF_RUNS:
            odd = rng.random(run.shape) < _SHARE_OF_ODD_NUMBERS
            factors = rng.choice(_ODD_FACTORS, run.shape)
            bits = encode_scalars(np.where(odd, run * factors, run), DType.BF16)
            run[...] = (bits.astype(np.uint32) << 16).view(np.float32)
        else:
            run[rng.random(run.shape) < _SHARE_OF_ZEROS] = 0
    return rows.reshape(values.shape)


_RUN_ROWS = 32
_SHARE_OF_RUNS = 0.75
_SHARE_OF_ODD_NUMBERS = 1 / 2000
_SHARE_OF_ZEROS = 1 / 20
_ODD_FACTORS = np.array([0, -0.0, 2**-18, 4], dtype=np.float32)


def _random_blocks(rng: Random, storage: BlockFormat, shape: Sequence[int]) -> Array:
    """uint8 [blocks, block_bytes]: every code is random, and the scales differ from block to block.

    Some scales are zero and some negative: both occur in files.
    """
    count = math.prod(shape) // storage.block_elements
    blocks = rng.integers(0, 256, (count, storage.block_bytes), dtype=np.uint8)
    levels = 1 << storage.bits
    typical = _largest_scale_code(storage.super_scales) * levels * math.sqrt(shape[-1]) / 4
    scale = rng.uniform(0.5, 1.5, count) * rng.choice([-1, 0, 1], count, p=[0.3, 0.05, 0.65])
    _store_half(blocks, storage.scale_offset, scale / typical)
    if storage.min_offset is not None:
        # About half the range, so that codes of both ends count alike.
        low = rng.uniform(0.5, 1.5, count) * rng.choice([-1, 1], count) * levels / 2
        _store_half(blocks, storage.min_offset, low / typical)
    return blocks


def _largest_scale_code(two_levels: SuperScales | None) -> int:
    if two_levels is None:
        return 1
    codes = 1 << max(plane.left + plane.bits for plane in two_levels.planes)
    return codes - two_levels.zero


def _store_half(blocks: Array, offset: int, values: Array) -> None:
    blocks[:, offset : offset + 2] = values.astype(np.float16)[:, None].view(np.uint8)
