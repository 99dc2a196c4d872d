"""Blocks of the KV cache between this backend's order and the canonical one.

Here the K half of a block is [kv_head][head_dim][slot] (`kernels/batch.py` says why), and the V
half [kv_head][slot][head_dim] as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crossinfer.core.dtypes import Array, DType, decode_scalars, encode_scalars


def block_values(raw: bytes, shape: Sequence[int], dtype: DType) -> Array:
    """A block's bytes as float32, [K, V][kv_head][slot][head_dim]. `shape` is the cache's."""
    keys, values = np.split(decode_scalars(raw, dtype), 2)
    heads, slots, head_dim = shape[2:]
    keys = keys.reshape(heads, head_dim, slots).swapaxes(1, 2)
    return np.stack([keys, values.reshape(heads, slots, head_dim)])


def block_bytes(values: Array, dtype: DType) -> Array:
    """A canonical block in this backend's order, as an array whose bytes are the storage."""
    keys = values[0].swapaxes(1, 2)
    return encode_scalars(np.concatenate([keys.ravel(), values[1].ravel()]), dtype)


def pack_cache(data: memoryview, shape: Sequence[int], dtype: DType) -> Iterator[Array]:
    """A canonical cache in this backend's order, block by block."""
    size = dtype.bytes_for(shape[1:])
    for start in range(0, len(data), size):
        block = decode_scalars(data[start : start + size], dtype).reshape(tuple(shape[1:]))
        yield block_bytes(block, dtype)
