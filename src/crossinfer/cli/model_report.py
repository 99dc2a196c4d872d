"""What a model file holds, gathered for `crossinfer inspect`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossinfer.core.errors import FormatError, TokenizerError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_split import part_of
from crossinfer.formats.model_file import ModelFile
from crossinfer.formats.string_array import StringArray
from crossinfer.formats.tensors import StoredTensor
from crossinfer.models.config import ModelConfig
from crossinfer.models.model import load_model
from crossinfer.text.model_text import load_tokenizer

# Elements of a long array that are shown.
_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class LongArray:
    """The beginning of an array that is too long to show."""

    length: int
    first: list[Any]


@dataclasses.dataclass(frozen=True)
class StorageTotal:
    """All tensors of one storage format together."""

    storage: str
    tensors: int
    parameters: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """A model file in figures. Metadata values are plain Python, long arrays LongArray."""

    path: str
    format: str
    file_bytes: int
    architecture: str | None
    config: ModelConfig | None
    notes: tuple[str, ...]
    """What will not be used as the file has it."""
    problem: str | None
    """Why the model cannot be run, if it cannot."""
    metadata: dict[str, Any]
    tensors: list[StoredTensor]
    totals: list[StorageTotal]

    @property
    def parameters(self) -> int:
        return sum(total.parameters for total in self.totals)

    @property
    def tensor_bytes(self) -> int:
        return sum(total.bytes for total in self.totals)


def report(file: ModelFile) -> ModelReport:
    """What `file` holds; also of a model that cannot be run."""
    tensors = list(file.tensors.values())
    config, problem = None, None
    notes: tuple[str, ...] = ()
    try:
        model = load_model(file)
        config, notes = model.config, model.notes
        load_tokenizer(file)
    except (FormatError, TokenizerError) as error:
        problem = str(error)
    gguf = isinstance(file, GGUFFile)
    metadata = file.metadata if isinstance(file, GGUFFile) else file.config
    named = metadata.get("general.architecture" if gguf else "model_type")
    return ModelReport(
        path=str(file.path),
        format=_format_of(file),
        file_bytes=_size_of(file),
        architecture=str(named) if named is not None else None,
        config=config,
        notes=notes,
        problem=problem,
        metadata={key: _plain(value) for key, value in metadata.items()},
        tensors=tensors,
        totals=_totals(tensors),
    )


def _format_of(file: ModelFile) -> str:
    if not isinstance(file, GGUFFile):
        return "safetensors"
    part = part_of(file)
    if part is None:
        return f"GGUF version {file.version}"
    whole = "all opened" if len(file.parts) == part.count else "the others are not opened"
    return f"GGUF version {file.version}, {part} ({whole})"


def _size_of(file: ModelFile) -> int:
    files: Iterable[Path] = file.parts if isinstance(file, GGUFFile) else file.path.iterdir()
    return sum(file.stat().st_size for file in files if file.is_file())


def _plain(value: Any) -> Any:
    """A metadata value in types that JSON has, but for LongArray."""
    if isinstance(value, StringArray) and len(value) <= _SHOWN:
        return value.tolist()
    if isinstance(value, np.ndarray):
        if len(value) > _SHOWN:  # before converting: vocabularies have 150,000 elements
            return LongArray(len(value), value[:_SHOWN].tolist())
        return value.tolist()
    if isinstance(value, list | StringArray) and len(value) > _SHOWN:
        return LongArray(len(value), [_plain(element) for element in value[:_SHOWN]])
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value


def _totals(tensors: list[StoredTensor]) -> list[StorageTotal]:
    """By storage format, the one with most bytes first."""
    groups: dict[str, list[StoredTensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.storage.label, []).append(tensor)
    totals = [
        StorageTotal(
            label,
            len(group),
            sum(math.prod(tensor.shape) for tensor in group),
            sum(tensor.size_in_bytes for tensor in group),
        )
        for label, group in groups.items()
    ]
    return sorted(totals, key=lambda total: -total.bytes)
