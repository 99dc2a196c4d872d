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
        scale = np.float32(1 / math.sqrt(shape[-1]))
        return encode_scalars(random_values(rng, *shape) * scale, storage)
    return _random_blocks(rng, storage, shape)


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
