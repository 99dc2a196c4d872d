"""Reads GGUF files, versions 2 and 3, little endian.

A file is: the magic `GGUF`, uint32 version, uint64 tensor count, uint64 metadata count, the
metadata, a description of each tensor (name, uint32 number of dimensions, uint64 dimensions with
the innermost first, uint32 type, uint64 offset), padding, and the data section that the offsets
count from. Offsets and the data section are multiples of `general.alignment`. Source: the GGUF
specification, `docs/gguf.md` of ggml.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from crossinfer.core.errors import shown
from crossinfer.core.records import entity, record
from crossinfer.core.shapes import align_up
from crossinfer.formats.ggml_types import STORAGE_BY_ID, type_name
from crossinfer.formats.gguf_metadata import (
    DOWNLOAD_AGAIN,
    UINT32,
    Cursor,
    MetadataValue,
    read_metadata,
)
from crossinfer.formats.table_formats import FileType
from crossinfer.formats.tensors import StoredTensor, map_file, overlapping

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"

_MAX_DIMENSIONS = 4
# Of tensors and of keys: the largest models have thousands, and a hostile file must not take long.
_MAX_ENTRIES = 1 << 15
# The smallest entries: a key without name and with a one-byte value; a one-dimensional tensor
# without name.
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_SHAPE_TYPE_OFFSET = [struct.Struct(f"<{count}QIQ") for count in range(_MAX_DIMENSIONS + 1)]
"""What follows a number of dimensions."""


@entity
class GGUFFile:
    """An open GGUF file. `tensors` are views of the mapped file, in the file's order.

    Metadata numbers come as int or float whatever their width, arrays of numbers as
    one-dimensional NumPy arrays, arrays of strings as sequences over the file (`StringArray`).
    """

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, StoredTensor]
    parts: tuple[Path, ...]
    """All files of the model: several if it is split (see `gguf_split`), `path` first."""

    @classmethod
    def open(cls, path: Path | str) -> GGUFFile:
        """Map the file at `path` and check all of it but the weights' values.

        Raises FormatError for a file that is missing, damaged, or of an unsupported type.
        """
        path = Path(path)
        cursor = Cursor(map_file(path), path)
        version = _read_version(cursor)
        tensor_count = cursor.u64("the number of tensors")
        key_count = cursor.u64("the number of metadata keys")
        cursor.need(tensor_count, _MIN_TENSOR_BYTES, f"a list of {tensor_count} tensors")
        cursor.need(key_count, _MIN_KEY_BYTES, f"a list of {key_count} metadata keys")
        if max(tensor_count, key_count) > _MAX_ENTRIES:
            cursor.fail(
                f"the file lists {tensor_count} tensors and {key_count} metadata keys; at most "
                f"{_MAX_ENTRIES} are supported"
            )
        metadata, kinds = read_metadata(cursor, key_count)
        alignment = _alignment(cursor, metadata, kinds)
        tensors = _read_tensors(cursor, tensor_count, alignment)
        return cls(path, version, metadata, tensors, (path,))


def _read_version(cursor: Cursor) -> int:
    magic = bytes(cursor.take(4, "the magic number"))
    if magic != MAGIC:
        cursor.fail(f"this is not a GGUF file, since it begins with {magic!r} and not b'GGUF'")
    version = cursor.u32("the version")
    if version and version % (1 << 16) == 0:
        cursor.fail("this is a big-endian GGUF file; only little-endian ones are supported")
    if version not in (2, 3):
        cursor.fail(
            f"this is version {version} of GGUF; only versions 2 and 3 are supported, so convert "
            "the model again with a current converter"
        )
    return version


def _alignment(
    cursor: Cursor, metadata: Mapping[str, MetadataValue], kinds: Mapping[str, int]
) -> int:
    if ALIGNMENT_KEY not in metadata:
        return DEFAULT_ALIGNMENT
    value = metadata[ALIGNMENT_KEY]
    if kinds[ALIGNMENT_KEY] != UINT32 or not isinstance(value, int):
        cursor.fail(f"metadata key {ALIGNMENT_KEY!r} is not a uint32; {DOWNLOAD_AGAIN}")
    if value.bit_count() != 1:
        cursor.fail(
            f"metadata key {ALIGNMENT_KEY!r} is {value}, not a power of two; {DOWNLOAD_AGAIN}"
        )
    return value


@record
class _Description:
    """What the file says of a tensor."""

    name: str
    shape: tuple[int, ...]
    storage: FileType
    offset: int
    size: int


class _Tensor:
    """A tensor as messages name it. Put together when one is needed: hundreds are read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"tensor {shown(self._name)}"


def _read_description(cursor: Cursor, index: int) -> _Description:
    name = cursor.string(f"the name of tensor {index}")
    what = _Tensor(name)
    dimensions = cursor.u32(what)
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        cursor.fail(
            f"{what} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are possible; "
            f"{DOWNLOAD_AGAIN}"
        )
    rest = _SHAPE_TYPE_OFFSET[dimensions]
    *inner_first, number, offset = rest.unpack(cursor.take(rest.size, what))
    shape = tuple(inner_first[::-1])
    if 0 in shape:
        cursor.fail(f"{what} has the shape {shape}, which holds nothing; {DOWNLOAD_AGAIN}")
    if number not in STORAGE_BY_ID:
        cursor.fail(
            f"{what} is stored as {type_name(number)}, which is not supported; take a file with "
            "another quantization, such as Q4_K_M or Q8_0"
        )
    storage = STORAGE_BY_ID[number]
    if shape[-1] % storage.block_elements:
        cursor.fail(
            f"{what} has rows of {shape[-1]} elements, but {storage.label.upper()} stores whole "
            f"blocks of {storage.block_elements}; {DOWNLOAD_AGAIN}"
        )
    return _Description(name, shape, storage, offset, storage.bytes_for(shape))


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, StoredTensor]:
    descriptions: dict[str, _Description] = {}
    for index in range(count):
        description = _read_description(cursor, index)
        if description.name in descriptions:
            cursor.fail(f"tensor {shown(description.name)} is there twice; {DOWNLOAD_AGAIN}")
        descriptions[description.name] = description
    start = align_up(cursor.at, alignment)
    available = cursor.data.nbytes - start
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in descriptions.items():
        if tensor.offset % alignment:
            cursor.fail(
                f"tensor {shown(name)} is at offset {tensor.offset}, which is not a multiple of "
                f"the alignment {alignment}; {DOWNLOAD_AGAIN}"
            )
        if tensor.offset + tensor.size > available:
            cursor.fail(
                f"tensor {shown(name)} ends at byte {tensor.offset + tensor.size} of a data "
                f"section of {max(available, 0)} bytes; {DOWNLOAD_AGAIN}"
            )
        begin = start + tensor.offset
        data = cursor.data[begin : begin + tensor.size]
        tensors[name] = StoredTensor(name, tensor.shape, tensor.storage, data)
    extents = ((t.offset, t.offset + t.size, t.name) for t in descriptions.values())
    for first, second in overlapping(extents):
        cursor.fail(f"tensors {shown(first)} and {shown(second)} overlap; {DOWNLOAD_AGAIN}")
    end = max((start + t.offset + t.size for t in descriptions.values()), default=cursor.at)
    _check_end(cursor, align_up(end, alignment))
    return tensors


def _check_end(cursor: Cursor, end: int) -> None:
    """Nothing but padding may follow the last tensor."""
    rest = cursor.data[end:]
    if bytes(rest[: len(MAGIC)]) == MAGIC:
        cursor.fail(
            f"another GGUF file begins at byte {end}; parts of a model must not be joined with "
            "`cat`, so take the parts as they were and name the first"
        )
    if rest:
        cursor.fail(
            f"{rest.nbytes} bytes follow the last tensor, from byte {end} on, and belong to "
            "nothing; the file is damaged, so download it again"
        )
