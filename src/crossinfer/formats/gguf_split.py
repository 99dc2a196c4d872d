"""GGUF models cut into several files, as llama.cpp's `gguf-split` cuts them.

The parts are named `NAME-00001-of-00003.gguf`. Each has the keys `split.no` (its number, from 0),
`split.count` and `split.tensors.count` (of the whole model); all other metadata is in the first.
Source: `tools/gguf-split/gguf-split.cpp` of llama.cpp.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from crossinfer.core.errors import FormatError, shown
from crossinfer.core.records import record
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.tensors import StoredTensor

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_PARTS = 99_999


@record
class Part:
    """Which part of a model a file is. `number` counts from 1, as the files' names do."""

    number: int
    count: int
    tensors: int
    """Of the whole model."""

    def __str__(self) -> str:
        return f"part {self.number} of {self.count}"


def part_of(file: GGUFFile) -> Part | None:
    """Which part `file` is, or None for a whole model. Raises FormatError for keys that are wrong.

    A model may also be "split" into one file, which is then a part of its own.
    """
    named = _NAME.fullmatch(file.path.name)
    if "split.count" not in file.metadata and "split.no" not in file.metadata:
        if named is not None and int(named["count"]) > 1:
            raise FormatError(
                f"{file.path} is named as part {int(named['number'])} of {int(named['count'])}, "
                "but its metadata does not say that it is one (split.count is missing); download "
                "it again, or rename it if it is a whole model."
            )
        return None
    count = _size(file, "split.count", 1, _MAX_PARTS)
    number = _size(file, "split.no", 0, count - 1) + 1
    part = Part(number, count, _size(file, "split.tensors.count", 0, 1 << 31))
    if named is not None and (int(named["number"]), int(named["count"])) != (number, count):
        raise FormatError(
            f"{file.path} is {part} by its metadata, which is not what its name says; the parts "
            "were renamed or mixed up, so download them again."
        )
    return part


def _size(file: GGUFFile, key: str, least: int, most: int) -> int:
    value = file.metadata.get(key)
    if type(value) is not int or not least <= value <= most:
        raise FormatError(
            f"{file.path}: metadata key {key!r} is {shown(value)}; a part of a model has a whole "
            f"number from {least} to {most} there."
        )
    return value


def refuse_lone_part(file: GGUFFile) -> None:
    """Raises FormatError if `file` is a part of a model whose other parts were not opened."""
    part = part_of(file)
    if part is not None and part.count != len(file.parts):
        first = _part_path(file.path, 1, part.count)
        where = f", {first.name}" if first is not None else ""
        raise FormatError(f"{file.path} is only {part} of a model; name the first part{where}.")


def join_parts(first: GGUFFile) -> GGUFFile:
    """The whole model whose first part is `first`; any other file as it is.

    Raises FormatError for parts that are missing, repeated, reordered, or of another model.
    """
    part = part_of(first)
    if part is None or part.number != 1:
        return first
    files = [first]
    for number in range(2, part.count + 1):
        path = _part_path(first.path, number, part.count)
        if path is None:
            raise FormatError(
                f"{first.path} is {part}, so its name must end in -00001-of-{part.count:05}.gguf "
                "for the other parts to be found; give it back the name that it had."
            )
        if not path.exists():
            raise FormatError(
                f"{first.path} is {part}, and the part {path.name} is not beside it; download all "
                "parts into one folder."
            )
        files.append(GGUFFile.open(path))
        if part_of(files[-1]) != dataclasses.replace(part, number=number):
            raise FormatError(
                f"{path} is not part {number} of the model that {first.path.name} begins; "
                "download the parts again."
            )
    tensors = _joined(files)
    if len(tensors) != part.tensors:
        raise FormatError(
            f"{first.path}: the {part.count} parts have {len(tensors)} tensors and "
            f"split.tensors.count is {part.tensors}; download the parts again."
        )
    return dataclasses.replace(first, tensors=tensors, parts=tuple(file.path for file in files))


def _joined(files: list[GGUFFile]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise FormatError(
                    f"{file.path}: tensor {shown(name)} is in an earlier part too; download the "
                    "parts again."
                )
            tensors[name] = tensor
    return tensors


def _part_path(path: Path, number: int, count: int) -> Path | None:
    """Where a part is, by the name of another; None if that is not named as a part."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        return None
    return path.with_name(f"{named['stem']}-{number:05}-of-{count:05}.gguf")
