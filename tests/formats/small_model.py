"""A llama model of a few kilobytes, whose metadata and tensors can be changed one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossinfer.core.dtypes import Array, DType
from crossinfer.formats.gguf_writer import TypedValue, write_gguf
from crossinfer.formats.safetensors import write_safetensors
from crossinfer.formats.tensors import TensorSource
from crossinfer.models.gguf_config import checkpoint_name

SIZE, VOCABULARY = 64, 16

METADATA: Mapping[str, TypedValue] = {
    "general.architecture": "llama",
    "llama.block_count": np.uint32(1),
    "llama.context_length": np.uint32(64),
    "llama.embedding_length": np.uint32(SIZE),
    "llama.feed_forward_length": np.uint32(SIZE),
    "llama.attention.head_count": np.uint32(4),
    "llama.attention.head_count_kv": np.uint32(2),
    "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
    "llama.rope.freq_base": np.float32(10000.0),
}
CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
    "hidden_size": SIZE,
    "intermediate_size": SIZE,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
}
SHAPES: Mapping[str, tuple[int, ...]] = {
    "token_embd.weight": (VOCABULARY, SIZE),
    "blk.0.attn_norm.weight": (SIZE,),
    "blk.0.attn_q.weight": (SIZE, SIZE),
    "blk.0.attn_k.weight": (SIZE // 2, SIZE),
    "blk.0.attn_v.weight": (SIZE // 2, SIZE),
    "blk.0.attn_output.weight": (SIZE, SIZE),
    "blk.0.ffn_norm.weight": (SIZE,),
    "blk.0.ffn_gate.weight": (SIZE, SIZE),
    "blk.0.ffn_up.weight": (SIZE, SIZE),
    "blk.0.ffn_down.weight": (SIZE, SIZE),
    "output_norm.weight": (SIZE,),
}


def tensors(dtype: DType = DType.F32) -> dict[str, TensorSource]:
    """The weights, all 1/64, by their GGUF names."""
    return {
        name: source(name, np.full(shape, 1 / 64, np.float32), dtype)
        for name, shape in SHAPES.items()
    }


def source(name: str, values: Array, dtype: DType = DType.F32) -> TensorSource:
    return TensorSource.from_array(name, values, dtype)


def small_gguf(
    folder: Path,
    metadata: Mapping[str, TypedValue | None] | None = None,
    changed: Mapping[str, TensorSource | None] | None = None,
    name: str = "model.gguf",
) -> Path:
    """Write the model with these keys and tensors changed; None takes one out."""
    keys = {**METADATA, **(metadata or {})}
    weights = {**tensors(), **(changed or {})}
    write_gguf(
        folder / name,
        {key: value for key, value in keys.items() if value is not None},
        [tensor for tensor in weights.values() if tensor is not None],
    )
    return folder / name


def small_folder(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    changed: Mapping[str, TensorSource | None] | None = None,
) -> Path:
    """The same as a Hugging Face folder."""
    keys = {**CONFIG, **(config or {})}
    text = json.dumps({key: value for key, value in keys.items() if value is not None})
    (folder / "config.json").write_text(text)
    named = {
        checkpoint_name(name): source(checkpoint_name(name), np.full(shape, 1 / 64, np.float32))
        for name, shape in SHAPES.items()
    }
    weights = {**named, **(changed or {})}
    write_safetensors(
        folder / "model.safetensors", [tensor for tensor in weights.values() if tensor is not None]
    )
    return folder


def small_split(folder: Path, count: int = 3, promised: int = len(SHAPES)) -> list[Path]:
    """The model in `count` parts, the metadata in the first."""
    weights = list(tensors().values())
    paths = []
    for number in range(count):
        keys = {
            **(METADATA if number == 0 else {}),
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(promised),
        }
        paths.append(folder / f"model-{number + 1:05}-of-{count:05}.gguf")
        write_gguf(paths[-1], keys, weights[number::count])
    return paths
