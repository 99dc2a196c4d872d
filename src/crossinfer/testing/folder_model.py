"""Writes a test model as a Hugging Face folder that `transformers` 4 and 5 load."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from crossinfer.core.dtypes import DType
from crossinfer.formats.huggingface import INDEX_FILE, SINGLE_FILE
from crossinfer.formats.safetensors import write_safetensors
from crossinfer.formats.tensors import TensorSource
from crossinfer.testing.shapes import Kind, ModelShape, Weight
from crossinfer.testing.vocabulary import END_OF_TEXT, TURN_END, Vocabulary

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_TORCH_NAMES = {DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16"}


def write_folder_model(
    path: Path, shape: ModelShape, vocabulary: Vocabulary, dtype: DType, seed: int, shards: int = 1
) -> None:
    """Write the model to the folder `path`, its weights in `shards` files."""
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / "config.json", _config(shape, vocabulary, dtype))
    _write_json(path / "generation_config.json", _generation_config(vocabulary))
    _write_json(path / "tokenizer.json", vocabulary.tokenizer_json())
    _write_json(path / "tokenizer_config.json", vocabulary.tokenizer_config())
    sources = [_source(weight, dtype, seed) for weight in shape.weights()]
    if shards == 1:
        write_safetensors(path / SINGLE_FILE, sources, {"format": "pt"})
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        part = sources[shard::shards]
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(path / name, part, {"format": "pt"})
        weight_map |= dict.fromkeys((source.name for source in part), name)
    total = sum(source.size_in_bytes for source in sources)
    _write_json(path / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _source(weight: Weight, dtype: DType, seed: int) -> TensorSource:
    if weight.kind is not Kind.MATRIX:
        return TensorSource.from_array(weight.hf, weight.vector(seed), dtype)
    chunks = functools.partial(weight.matrix(seed).encoded, dtype)
    return TensorSource(weight.hf, weight.shape, dtype, chunks)


def _config(shape: ModelShape, vocabulary: Vocabulary, dtype: DType) -> dict[str, Any]:
    # rope_theta and rope_scaling beside each other: the spelling that both major versions read.
    config: dict[str, Any] = {
        "architectures": [_CLASSES[shape.architecture]],
        "model_type": shape.architecture,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": dict(shape.rope_scaling) if shape.rope_scaling else None,
        "tie_word_embeddings": shape.tie_embeddings,
        "attention_dropout": 0.0,
        "bos_token_id": vocabulary.id_of(END_OF_TEXT),
        "eos_token_id": vocabulary.id_of(TURN_END),
        "torch_dtype": _TORCH_NAMES[dtype],
        "use_cache": True,
    }
    if shape.architecture == "qwen2":
        config["use_sliding_window"] = False
    else:
        config |= {"head_dim": shape.head_dim, "attention_bias": False}
    return config


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    end_of_text, turn_end = vocabulary.id_of(END_OF_TEXT), vocabulary.id_of(TURN_END)
    return {
        "bos_token_id": end_of_text,
        "eos_token_id": [turn_end, end_of_text],
        "pad_token_id": end_of_text,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
    }
