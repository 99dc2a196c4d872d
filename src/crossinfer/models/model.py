"""A model file opened: its configuration, its weights by checkpoint name, and its graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.huggingface import HuggingFaceFolder
from crossinfer.formats.model_file import ModelFile, open_model_file
from crossinfer.formats.tensors import StoredTensor
from crossinfer.graph.graph import Graph, Tensor
from crossinfer.hal.buffer import Role
from crossinfer.hal.kernel import Operand
from crossinfer.models.config import ModelConfig
from crossinfer.models.decoder import ROPE_TABLE, StepShape
from crossinfer.models.gguf_config import (
    ROPE_FACTORS,
    checkpoint_name,
    config_from_gguf,
    gguf_architecture,
)
from crossinfer.models.huggingface_config import config_from_huggingface, huggingface_architecture
from crossinfer.models.registry import find_architecture
from crossinfer.models.rope import rope_table

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class Model:
    """An architecture with its weights, which stay in the mapped file."""

    path: Path
    config: ModelConfig
    weights: Mapping[str, StoredTensor]
    rope_factors: Array | None
    """float32 [head_dim / 2] that divide the rotary frequencies, where the file has them."""

    @property
    def is_float32(self) -> bool:
        """Whether every matrix is float32, so that nothing in the model is rounded."""
        matrices = (weight for weight in self.weights.values() if len(weight.shape) > 1)
        return all(matrix.storage is DType.F32 for matrix in matrices)

    def graph(self, shape: StepShape) -> Graph:
        """The graph of a step. Raises FormatError if weights are missing or misshapen."""
        types = {name: _type(weight) for name, weight in self.weights.items()}
        build = find_architecture(self.config.architecture, str(self.path))
        try:
            return build(self.config, types, shape)
        except FormatError as error:
            raise FormatError(f"{self.path}: {error}") from None

    def constant(self, tensor: Tensor) -> memoryview | Array:
        """The bytes of a constant of the graph, dense and row-major."""
        if tensor.name == ROPE_TABLE:
            return rope_table(self.config, tensor.type.shape[0], self.rope_factors)
        weight = self.weights[tensor.name]
        if weight.storage is tensor.type.storage:
            return weight.data
        return weight.to_float32()  # norms and biases in half precision, widened without loss

    def check(self) -> None:
        """Raises FormatError if weights are missing, misshapen, or not part of the architecture."""
        probe = StepShape(1, 1, 1, 1, 2, DType.F16, 1)
        unknown = self.weights.keys() - self.graph(probe).constants.keys()
        if self.config.tied_embeddings:
            unknown.discard(_HEAD)  # some checkpoints store the tied table twice
        if unknown:
            raise FormatError(
                f"{self.path}: the tensor {min(unknown)} is not part of the architecture "
                f"{self.config.architecture!r} ({len(unknown)} such in all), so the file is of "
                "another model than it says."
            )


def _type(weight: StoredTensor) -> Operand:
    """Matrices keep their storage; vectors (norms, biases) are small and become float32."""
    if len(weight.shape) == 1:
        return Operand(weight.shape, DType.F32, Role.PLAIN)
    return Operand(weight.shape, weight.storage, Role.WEIGHT)


def load_model(file: ModelFile | Path | str) -> Model:
    """The model in a GGUF file or a Hugging Face folder; weights are mapped, not read.

    Raises FormatError.
    """
    if isinstance(file, Path | str):
        file = open_model_file(file)
    model = _from_gguf(file) if isinstance(file, GGUFFile) else _from_huggingface(file)
    model.check()
    return model


def _from_gguf(file: GGUFFile) -> Model:
    where = str(file.path)
    find_architecture(gguf_architecture(file.metadata, where), where)
    weights = {checkpoint_name(name): tensor for name, tensor in file.tensors.items()}
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


def _with_factors(model: Model, factors: StoredTensor | None) -> Model:
    if factors is None:
        return model
    if factors.shape != (model.config.head_dim // 2,):
        raise FormatError(
            f"{model.path}: the tensor {ROPE_FACTORS} has the shape {factors.shape}, not "
            f"{(model.config.head_dim // 2,)}."
        )
    return dataclasses.replace(model, rope_factors=factors.to_float32())


def _from_huggingface(folder: HuggingFaceFolder) -> Model:
    where = str(folder.path / "config.json")
    find_architecture(huggingface_architecture(folder.config, where), where)
    config = config_from_huggingface(folder.config, where)
    # Old checkpoints carry the rotary frequencies, which follow from the configuration.
    weights = {
        name: tensor
        for name, tensor in folder.tensors.items()
        if not name.endswith("rotary_emb.inv_freq")
    }
    return Model(folder.path, config, weights, None)
