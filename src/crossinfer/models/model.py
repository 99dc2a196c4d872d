"""A model file opened: its configuration, its weights by checkpoint name, and its graphs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import FormatError, shown
from crossinfer.core.records import record
from crossinfer.formats.finite import first_not_finite
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_split import refuse_lone_part
from crossinfer.formats.model_file import ModelFile, open_model_file
from crossinfer.formats.tensors import StoredTensor, release_files
from crossinfer.graph.graph import Graph, Tensor
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.models.config import ModelConfig
from crossinfer.models.conversions import conversion_notes
from crossinfer.models.decoder import ROPE_TABLE, StepShape
from crossinfer.models.gguf_config import (
    ROPE_FACTORS,
    checkpoint_name,
    config_from_gguf,
    gguf_architecture,
)
from crossinfer.models.registry import find_architecture
from crossinfer.models.rope import rope_table

if TYPE_CHECKING:
    from crossinfer.formats.huggingface import HuggingFaceFolder

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@record
class Model:
    """An architecture with its weights, which stay in the mapped file."""

    path: Path
    config: ModelConfig
    weights: Mapping[str, StoredTensor]
    rope_factors: Array | None
    """float32 [head_dim / 2] that divide the rotary frequencies, where the file has them."""
    ignored: frozenset[str] = frozenset()
    """Tensors of the file that generating text does not use."""

    @functools.cached_property
    def operands(self) -> Mapping[str, Operand]:
        """What the graph sees of each weight."""
        return {name: _operand(weight) for name, weight in self.weights.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what is not as the file has it, the warnings included."""
        notes, warnings = conversion_notes(self.weights.values())
        if not self.ignored:
            return (*warnings, *notes)
        from crossinfer.models.surplus import ignored_note  # as below

        return (*warnings, *notes, ignored_note(self.ignored))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that whoever runs the model should hear."""
        return conversion_notes(self.weights.values())[1]

    @property
    def is_float32(self) -> bool:
        """Whether every matrix is float32, so that nothing in the model is rounded."""
        matrices = (operand for operand in self.operands.values() if len(operand.shape) > 1)
        return all(matrix.storage is DType.F32 for matrix in matrices)

    def graph(self, shape: StepShape) -> Graph:
        """The graph of a step. Raises FormatError if weights are missing or misshapen."""
        build = find_architecture(self.config.architecture, str(self.path))
        try:
            return build(self.config, self.operands, shape)
        except FormatError as error:
            raise FormatError(f"{self.path}: {error}") from None

    def constant(self, tensor: Tensor) -> memoryview | Array:
        """The bytes of a constant of the graph, dense and row-major; see `check_finite`."""
        if tensor.name == ROPE_TABLE:
            return rope_table(self.config, tensor.type.shape[0], self.rope_factors)
        weight = self.weights[tensor.name]
        # Vectors (norms, biases) in half precision or blocks are widened without loss.
        matches = weight.loaded_as is tensor.type.storage
        return weight.load() if matches else weight.to_float32()

    def check_finite(self, tensor: Tensor, data: memoryview | Array) -> None:
        """Raises FormatError if `data`, the bytes of a constant, hold NaN or infinity."""
        if tensor.name == ROPE_TABLE:
            return
        element = first_not_finite(data, tensor.type.storage)
        if element is not None:
            weight = self.weights[tensor.name]
            raise FormatError(
                f"{self.path}: the tensor {shown(weight.name)} holds NaN or infinity in row "
                f"{element // weight.shape[-1]}; the file is damaged or the model faulty, so "
                "take another."
            )

    def release_files(self) -> None:
        """Let go of the memory behind the model's files, which are read again where need be."""
        release_files(weight.data for weight in self.weights.values())

    def checked(self) -> Model:
        """The model without the weights that its graph does not use.

        Raises FormatError if weights are missing, misshapen, or neither part of the architecture
        nor known to be of no use.
        """
        probe = StepShape(1, 1, 1, 1, 2, DType.F16, 1)
        surplus = self.weights.keys() - self.graph(probe).constants.keys()
        if not surplus:
            return self
        from crossinfer.models.surplus import is_extra_head  # few models have any

        unknown = {name for name in surplus if not is_extra_head(name)}
        if self.config.tied_embeddings:
            unknown.discard(_HEAD)  # some checkpoints store the tied table twice
        if unknown:
            raise FormatError(
                f"{self.path}: the tensor {shown(min(unknown))} is not part of the architecture "
                f"{self.config.architecture!r} ({len(unknown)} such in all), so the file is of "
                "another model than it says."
            )
        used = {name: weight for name, weight in self.weights.items() if name not in surplus}
        return dataclasses.replace(self, weights=used, ignored=frozenset(surplus))


def _operand(weight: StoredTensor) -> Operand:
    """Matrices keep their storage; vectors (norms, biases) are small and become float32."""
    if weight.storage is DType.I32:
        raise FormatError(f"The tensor {shown(weight.name)} holds i32, not weights.")
    if len(weight.shape) == 1:
        return Operand(weight.shape, DType.F32, Role.PLAIN)
    return Operand(weight.shape, weight.loaded_as, Role.WEIGHT)


def load_model(file: ModelFile | Path | str) -> Model:
    """The model in a GGUF file or a Hugging Face folder; weights are mapped, not read.

    Raises FormatError.
    """
    if isinstance(file, Path | str):
        file = open_model_file(file)
    model = _from_gguf(file) if isinstance(file, GGUFFile) else _from_huggingface(file)
    return model.checked()


def _from_gguf(file: GGUFFile) -> Model:
    refuse_lone_part(file)
    where = str(file.path)
    find_architecture(gguf_architecture(file.metadata, where), where)
    weights = _by_checkpoint_name(file)
    factors = weights.pop(ROPE_FACTORS, None)
    if _EMBEDDING not in weights:
        raise FormatError(f"{where}: the tensor token_embd.weight is missing.")
    config = config_from_gguf(
        file.metadata,
        where,
        vocabulary=weights[_EMBEDDING].shape[0],
        tied_embeddings=_HEAD not in weights,
    )
    return _with_factors(Model(file.path, config, weights, None), factors)


def _by_checkpoint_name(file: GGUFFile) -> dict[str, StoredTensor]:
    weights: dict[str, StoredTensor] = {}
    for stored, tensor in file.tensors.items():
        name = checkpoint_name(stored)
        if name in weights:
            raise FormatError(
                f"{file.path}: the tensors {shown(weights[name].name)} and {shown(stored)} are "
                "the same weight; the file is damaged, so take another."
            )
        weights[name] = tensor
    return weights


def _with_factors(model: Model, factors: StoredTensor | None) -> Model:
    if factors is None:
        return model
    if factors.shape != (model.config.head_dim // 2,):
        raise FormatError(
            f"{model.path}: the tensor {ROPE_FACTORS} has the shape {factors.shape}, not "
            f"{(model.config.head_dim // 2,)}."
        )
    values = factors.to_float32()
    if not (np.isfinite(values) & (values > 0)).all():
        raise FormatError(
            f"{model.path}: the tensor {ROPE_FACTORS} holds factors that are not positive numbers; "
            "the file is damaged, so take another."
        )
    return dataclasses.replace(model, rope_factors=values)


def _from_huggingface(folder: HuggingFaceFolder) -> Model:
    # A GGUF file needs none of what reads the other kind.
    from crossinfer.models.huggingface_config import (
        config_from_huggingface,
        huggingface_architecture,
    )

    where = str(folder.path / "config.json")
    find_architecture(huggingface_architecture(folder.config, where), where)
    config = config_from_huggingface(folder.config, where)
    return Model(folder.path, config, folder.tensors, None)
