"""Writes GGUF files, version 3, little endian; see `crossinfer.formats.gguf` for the layout."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossinfer.core.cache import atomic_write
from crossinfer.core.dtypes import Array
from crossinfer.core.shapes import align_up
from crossinfer.formats.ggml_types import ID_BY_STORAGE
from crossinfer.formats.gguf import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC
from crossinfer.formats.gguf_metadata import ARRAY, BOOL, NUMBER_TYPES, STRING
from crossinfer.formats.tensors import TensorSource

VERSION = 3

TypedValue = str | bool | np.generic | Array | Sequence[str]
"""A metadata value whose type in the file is plain: numbers are NumPy scalars (`np.uint32(32)`) or
one-dimensional arrays, since a Python int or float does not say how wide it is."""

_KIND_BY_DTYPE = {dtype: number for number, dtype in NUMBER_TYPES.items()}


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _kind(key: str, dtype: np.dtype[Any]) -> int:
    if dtype == np.bool_:
        return BOOL
    kind = _KIND_BY_DTYPE.get(dtype.newbyteorder("<"))
    if kind is None:
        raise ValueError(f"metadata key {key!r}: GGUF has no type for {dtype}")
    return kind


def _little_endian(values: Array | np.generic) -> bytes:
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def encode_value(key: str, value: TypedValue) -> bytes:
    """The type number of `value` and its bytes. Raises ValueError if the type is not plain."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, np.generic):
        return struct.pack("<I", _kind(key, value.dtype)) + _little_endian(value)
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise ValueError(f"metadata key {key!r}: arrays have one dimension, not {value.ndim}")
        header = struct.pack("<IIQ", ARRAY, _kind(key, value.dtype), value.size)
        return header + _little_endian(value)
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        header = struct.pack("<IIQ", ARRAY, STRING, len(value))
        return header + b"".join(map(_string, value))
    raise ValueError(
        f"metadata key {key!r}: the type of {value!r} in the file is not plain; use str, bool, "
        "NumPy scalars and arrays, or lists of str"
    )


def write_gguf(
    path: Path | str, metadata: Mapping[str, TypedValue], tensors: Iterable[TensorSource]
) -> None:
    """Write a GGUF file with these keys and tensors, in their order.

    The tensors' bytes are asked for one tensor after another and never all held. The file appears
    under `path` when it is complete. Raises ValueError for values or shapes that GGUF cannot hold.
    """
    sources = list(tensors)
    alignment = int(np.asarray(metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT), dtype=np.uint32))
    header = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(sources), len(metadata)))
    for key, value in metadata.items():
        header += _string(key) + encode_value(key, value)
    offset = 0
    for source in sources:
        dimensions = source.shape[::-1]
        header += _string(source.name)
        header += struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        header += struct.pack("<IQ", ID_BY_STORAGE[source.storage], offset)
        offset += align_up(source.size_in_bytes, alignment)
    with atomic_write(Path(path)) as file:
        file.write(header.ljust(align_up(len(header), alignment), b"\0"))
        for source in sources:
            source.write_to(file)
            file.write(bytes(-source.size_in_bytes % alignment))
