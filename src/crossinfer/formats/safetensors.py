"""Reads and writes safetensors files.

A file is: uint64 length of the header, the header (a JSON object: tensor name to `dtype`, `shape`
and `data_offsets` = [begin, end) in the data section, plus an optional `__metadata__`), and the
data section, which the tensors fill without holes or overlaps. Source: the format's description in
the README of huggingface/safetensors.

This is not the `safetensors` package, because that cannot hand out bfloat16 tensors of a mapped
file through NumPy, which has no such type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.cache import atomic_write
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import FormatError, shown
from crossinfer.core.records import entity
from crossinfer.core.shapes import align_up
from crossinfer.formats.json_file import parse_object
from crossinfer.formats.other_files import SHOWN, what_it_is
from crossinfer.formats.tensors import StoredTensor, TensorSource, map_file, overlapping

DTYPE_BY_NAME = {"F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "I32": DType.I32}
NAME_BY_DTYPE = {dtype: name for name, dtype in DTYPE_BY_NAME.items()}

# A header is text, about a hundred bytes for each tensor; what is longer would only take long.
_MAX_HEADER_BYTES = 8_000_000
_METADATA = "__metadata__"


@entity
class SafetensorsFile:
    """An open safetensors file. `tensors` are views of the mapped file, in the header's order."""

    path: Path
    metadata: Mapping[str, str]
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path | str) -> SafetensorsFile:
        """Map the file at `path` and check its header against its size.

        Raises FormatError for a file that is missing, damaged, or of an unsupported type.
        """
        path = Path(path)
        data = map_file(path)
        other = what_it_is(bytes(data[:SHOWN]))
        if other is not None:
            raise FormatError(f"{path} is not a safetensors file: {other}.")
        if data.nbytes < 8:
            raise FormatError(f"{path} is too short for a safetensors file; download it again.")
        header_bytes = int.from_bytes(data[:8], "little")
        if header_bytes > min(data.nbytes - 8, _MAX_HEADER_BYTES):
            raise FormatError(
                f"{path} claims a header of {header_bytes} bytes, but has {data.nbytes - 8} and at "
                f"most {_MAX_HEADER_BYTES} are allowed; it is damaged or not a safetensors file."
            )
        header = parse_object(data[8 : 8 + header_bytes], f"The header of {path}")
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            raise FormatError(f"{path}: {_METADATA} is not a map from text to text.")
        return cls(path, metadata, _read_tensors(path, header, data[8 + header_bytes :]))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _read_tensor(path: Path, name: str, entry: Any, data: memoryview) -> tuple[StoredTensor, int]:
    """The tensor and where it begins in the data section."""

    def fail(problem: str) -> FormatError:
        return FormatError(f"{path}: tensor {shown(name)} {problem}.")

    if not isinstance(entry, dict):
        raise fail("is not described by a JSON object; the file is damaged, so download it again")
    label, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise fail(f"has the shape {shown(shape)}, not a list of sizes; download the file again")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise fail(
            f"has the data_offsets {shown(offsets)}, not two positions; download the file again"
        )
    if not isinstance(label, str) or label not in DTYPE_BY_NAME:
        raise fail(
            f"is stored as {shown(label)}, which is not supported; convert it to F32, F16 or BF16"
        )
    begin, end = offsets
    size = DTYPE_BY_NAME[label].bytes_for(shape)
    if end - begin != size:
        raise fail(
            f"takes {shown(size)} bytes as {label} {shown(shape)}, but its data_offsets {offsets} "
            f"hold {end - begin}; download the file again"
        )
    if end > data.nbytes:
        raise fail(
            f"ends at byte {end} of a data section of {data.nbytes} bytes; the file is cut short, "
            "so download it again"
        )
    return StoredTensor(name, tuple(shape), DTYPE_BY_NAME[label], data[begin:end]), begin


def _read_tensors(path: Path, header: dict[str, Any], data: memoryview) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    extents: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensor, begin = _read_tensor(path, name, entry, data)
        tensors[name] = tensor
        extents.append((begin, begin + tensor.size_in_bytes, name))
    for first, second in overlapping(extents):
        raise FormatError(
            f"{path}: tensors {shown(first)} and {shown(second)} overlap; download it again."
        )
    used = sum(tensor.size_in_bytes for tensor in tensors.values())
    if used != data.nbytes:
        raise FormatError(
            f"{path}: {data.nbytes - used} of {data.nbytes} data bytes belong to no tensor; the "
            "file is damaged, so download it again."
        )
    return tensors


def write_safetensors(
    path: Path | str, tensors: Iterable[TensorSource], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with these tensors, in their order.

    The tensors' bytes are asked for one tensor after another and never all held. The file appears
    under `path` when it is complete. Raises ValueError for storage that is not a scalar type.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    sources = list(tensors)
    offset = 0
    for source in sources:
        if not isinstance(source.storage, DType):
            raise ValueError(
                f"tensor {source.name}: safetensors cannot hold {source.storage.label}"
            )
        if source.name in header:
            raise ValueError(f"tensor {source.name} is given twice")
        end = offset + source.size_in_bytes
        header[source.name] = {
            "dtype": NAME_BY_DTYPE[source.storage],
            "shape": list(source.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(align_up(len(text), 8))  # so that the data section is aligned
    with atomic_write(Path(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for source in sources:
            source.write_to(file)
