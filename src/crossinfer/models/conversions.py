"""What is told about weights that become another type when they are loaded."""

from __future__ import annotations

from collections.abc import Iterable

from crossinfer.core.dtypes import DType
from crossinfer.core.shapes import count, format_bytes
from crossinfer.formats.table_formats import TableFormat
from crossinfer.formats.tensors import StoredTensor


def conversion_notes(weights: Iterable[StoredTensor]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(notes, warnings): a sentence for each pair of types.

    Warnings are about what is rounded, or becomes several times as large.
    """
    groups: dict[tuple[str, str], list[StoredTensor]] = {}
    for weight in weights:
        if isinstance(weight.storage, TableFormat):
            pair = weight.storage.label, weight.loaded_as.label
            groups.setdefault(pair, []).append(weight)
    notes: list[str] = []
    warnings: list[str] = []
    for (stored, loaded), group in groups.items():
        first = group[0]
        assert isinstance(first.storage, TableFormat)
        before = sum(weight.size_in_bytes for weight in group)
        after = sum(weight.loaded_as.bytes_for(weight.shape) for weight in group)
        how = "without loss" if first.storage.exact else "rounded"
        sentence = (
            f"{count(group, f'{stored.upper()} tensor')} loaded as {loaded.upper()}, {how}: "
            f"{format_bytes(after)} of memory instead of {format_bytes(before)}."
        )
        (warnings if isinstance(first.loaded_as, DType) else notes).append(sentence)
    return tuple(notes), tuple(warnings)
