"""Which storage type each weight of a test model gets."""

from __future__ import annotations

from collections.abc import Mapping

from crossinfer.core.dtypes import DType
from crossinfer.formats.blocks import (
    BLOCK_FORMATS,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    StorageType,
)
from crossinfer.testing.shapes import Kind, ModelShape, Weight

Q4_K_M = "q4_k_m"

_BASE: Mapping[str, StorageType] = {
    **{storage.label: storage for storage in (DType.F32, DType.F16, DType.BF16, *BLOCK_FORMATS)},
    Q4_K_M: Q4_K,
}

FORMATS = tuple(_BASE)
"""The names of what a model can be stored as: one type, or a mix of llama.cpp's."""

# What llama.cpp takes for rows that hold no whole block of 256, except that it takes the codebook
# type IQ4_NL where we take Q4_0.
_FALLBACK: Mapping[StorageType, StorageType] = {
    Q2_K: Q4_0,
    Q3_K: Q4_0,
    Q4_K: Q5_0,
    Q5_K: Q5_1,
    Q6_K: Q8_0,
}

FILE_TYPES: Mapping[str, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q8_0": 7,
    "q5_0": 8,
    "q5_1": 9,
    "q2_k": 10,
    "q3_k": 11,
    "q4_k": 14,
    "q4_k_m": 15,
    "q5_k": 16,
    "q6_k": 18,
    "bf16": 32,
}
"""`general.file_type` of each format. Source: `enum llama_ftype` in llama.cpp's `llama.h`."""


def base_storage(name: str) -> StorageType:
    """The type that most weights get. Raises ValueError for unknown names."""
    if name not in _BASE:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    return _BASE[name]


def _takes_more_bits(layer: int, layers: int) -> bool:
    """llama.cpp's `use_more_bits`: the first and last eighth and every third layer between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def storage_of(weight: Weight, shape: ModelShape, name: str) -> StorageType:
    """The type of `weight` in a GGUF file of the format `name`."""
    if weight.kind is not Kind.MATRIX:
        return DType.F32
    storage = base_storage(name)
    if name == Q4_K_M:
        output = "token_embd.weight" if shape.tie_embeddings else "output.weight"
        sensitive = weight.gguf.endswith(("attn_v.weight", "ffn_down.weight"))
        if weight.gguf == output or (
            sensitive and weight.layer is not None and _takes_more_bits(weight.layer, shape.layers)
        ):
            storage = Q6_K
    cols = weight.shape[-1]
    if cols % storage.block_elements:
        storage = _FALLBACK.get(storage, DType.F16)
    return storage if cols % storage.block_elements == 0 else DType.F16
