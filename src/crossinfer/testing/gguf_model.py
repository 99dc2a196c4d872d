"""Writes a test model as a GGUF file, as llama.cpp's converter would."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.gguf_writer import TypedValue, write_gguf
from crossinfer.formats.tensors import TensorSource
from crossinfer.testing.shapes import Kind, ModelShape, Weight
from crossinfer.testing.storage import FILE_TYPES, storage_of
from crossinfer.testing.vocabulary import CHAT_TEMPLATE, END_OF_TEXT, TURN_END, Vocabulary


def write_gguf_model(
    path: Path, name: str, shape: ModelShape, vocabulary: Vocabulary, storage: str, seed: int
) -> None:
    """Write the model to the file `path`, with `storage` a name of `testing.storage.FORMATS`."""
    metadata: dict[str, TypedValue] = {
        "general.architecture": shape.architecture,
        "general.type": "model",
        "general.name": name,
        "general.file_type": np.uint32(FILE_TYPES[storage]),
        "general.quantization_version": np.uint32(2),
        **_shape_metadata(shape),
        **_rope_metadata(shape),
        **_vocabulary_metadata(vocabulary),
    }
    sources = [_source(weight, shape, storage, seed) for weight in shape.weights()]
    factors = llama3_factors(shape)
    if factors is not None:
        sources.insert(1, TensorSource.from_array("rope_freqs.weight", factors, DType.F32))
    write_gguf(path, metadata, sources)


def rotary_order(rows: int, heads: int) -> Array:
    """The rows of q or k in the order of llama GGUF files.

    There, the two values that rotary embedding turns together are neighbours; in a checkpoint they
    are half a head apart.
    """
    return np.arange(rows).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def _source(weight: Weight, shape: ModelShape, format_name: str, seed: int) -> TensorSource:
    storage = storage_of(weight, shape, format_name)
    if weight.kind is not Kind.MATRIX:
        return TensorSource.from_array(weight.gguf, weight.vector(seed), DType.F32)
    order = None
    if shape.architecture == "llama" and weight.rotary_heads:
        order = rotary_order(weight.shape[0], weight.rotary_heads)
    chunks = functools.partial(weight.matrix(seed).encoded, storage, order)
    return TensorSource(weight.gguf, weight.shape, storage, chunks)


def _shape_metadata(shape: ModelShape) -> dict[str, TypedValue]:
    arch = shape.architecture
    result: dict[str, TypedValue] = {
        f"{arch}.block_count": np.uint32(shape.layers),
        f"{arch}.context_length": np.uint32(shape.context_length),
        f"{arch}.embedding_length": np.uint32(shape.hidden_size),
        f"{arch}.feed_forward_length": np.uint32(shape.intermediate_size),
        f"{arch}.attention.head_count": np.uint32(shape.heads),
        f"{arch}.attention.head_count_kv": np.uint32(shape.kv_heads),
        f"{arch}.attention.layer_norm_rms_epsilon": np.float32(shape.rms_norm_eps),
        f"{arch}.vocab_size": np.uint32(shape.vocab_size),
    }
    if arch == "qwen3" or shape.heads * shape.head_dim != shape.hidden_size:
        result[f"{arch}.attention.key_length"] = np.uint32(shape.head_dim)
        result[f"{arch}.attention.value_length"] = np.uint32(shape.head_dim)
    return result


def _rope_metadata(shape: ModelShape) -> dict[str, TypedValue]:
    arch = shape.architecture
    result: dict[str, TypedValue] = {
        f"{arch}.rope.freq_base": np.float32(shape.rope_theta),
        f"{arch}.rope.dimension_count": np.uint32(shape.head_dim),
    }
    scaling = shape.rope_scaling or {}
    if scaling.get("rope_type") not in ("linear", "yarn"):
        return result
    result[f"{arch}.rope.scaling.type"] = str(scaling["rope_type"])
    result[f"{arch}.rope.scaling.factor"] = np.float32(scaling["factor"])
    if "original_max_position_embeddings" in scaling:
        original = np.uint32(scaling["original_max_position_embeddings"])
        result[f"{arch}.rope.scaling.original_context_length"] = original
    return result


def llama3_factors(shape: ModelShape) -> Array | None:
    """What Llama 3's scaling divides each rotary frequency by, float32 [head_dim / 2], or None.

    Source: `LlamaModel.generate_extra_tensors` in llama.cpp's converter.
    """
    scaling = shape.rope_scaling or {}
    if scaling.get("rope_type") != "llama3":
        return None
    factor, low, high = (
        float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original = scaling["original_max_position_embeddings"]
    factors = []
    for index in range(shape.head_dim // 2):
        wavelength = 2 * math.pi * shape.rope_theta ** (2 * index / shape.head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, dtype=np.float32)


def _vocabulary_metadata(vocabulary: Vocabulary) -> dict[str, TypedValue]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": vocabulary.pre,
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.token_type": np.array(vocabulary.types, dtype=np.int32),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in vocabulary.merges],
        "tokenizer.ggml.bos_token_id": np.uint32(vocabulary.id_of(END_OF_TEXT)),
        "tokenizer.ggml.eos_token_id": np.uint32(vocabulary.id_of(TURN_END)),
        "tokenizer.ggml.padding_token_id": np.uint32(vocabulary.id_of(END_OF_TEXT)),
        "tokenizer.ggml.add_bos_token": vocabulary.add_bos,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
