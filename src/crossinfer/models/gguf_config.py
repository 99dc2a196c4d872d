"""ModelConfig from a GGUF file's metadata, and the checkpoint names of its tensors.

Keys and names are those of the GGUF specification and of llama.cpp's converter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from crossinfer.core.errors import FormatError, shown
from crossinfer.models.config import ModelConfig, RopeScaling
from crossinfer.models.keys import Keys


def gguf_architecture(metadata: Mapping[str, Any], where: str) -> str:
    """The name in general.architecture. Raises FormatError."""
    architecture = Keys(metadata, where).text("general.architecture")
    if architecture is None:
        raise FormatError(f"{where}: general.architecture is missing, so the model is unknown.")
    return architecture


def config_from_gguf(
    metadata: Mapping[str, Any], where: str, *, vocabulary: int, tied_embeddings: bool
) -> ModelConfig:
    """The configuration in a GGUF file's metadata; `vocabulary` is the embedding's rows."""
    architecture = gguf_architecture(metadata, where)
    keys = Keys(metadata, where, f"{architecture}.")
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    context = keys.integer("context_length")
    head_dim = keys.integer("attention.key_length", hidden // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(key, head_dim) != head_dim:
            raise FormatError(
                f"{where}: {architecture}.{key} is {keys.integer(key)} and the head dimension "
                f"{head_dim}; only equal ones are supported."
            )
    return ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=keys.integer("block_count"),
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        feed_forward=keys.integer("feed_forward_length"),
        vocabulary=vocabulary,
        context=context,
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope_base=keys.number("rope.freq_base", 10000.0),
        rope_scaling=_scaling(keys, context),
        # llama.cpp's converter reorders the query and key rows of this architecture only.
        rope_interleaved=architecture == "llama",
        tied_embeddings=tied_embeddings,
    ).validate(where)


def _scaling(keys: Keys, context: int) -> RopeScaling | None:
    kind = keys.text("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise FormatError(
            f"{keys.where}: the rotary scaling {shown(kind)} is not supported; linear and yarn are "
            "(llama3's is in the tensor rope_freqs)."
        )
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
        if keys.number(key, 1.0) != 1:
            raise FormatError(f"{keys.where}: {key} is {keys.number(key)}; only 1 is supported.")
    return RopeScaling(
        kind=kind,
        factor=keys.positive("rope.scaling.factor"),
        original_context=keys.integer("rope.scaling.original_context_length", context),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
    )


_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_TOP_NAME = re.compile(r"(\w+)\.(weight|bias)")

ROPE_FACTORS = "rope_freqs.weight"


def checkpoint_name(name: str) -> str:
    """The name in the original checkpoint of a GGUF tensor; an unknown name stays as it is."""
    if (match := _LAYER_NAME.fullmatch(name)) and match[2] in _LAYER:
        return f"model.layers.{int(match[1])}.{_LAYER[match[2]]}.{match[3]}"
    if (match := _TOP_NAME.fullmatch(name)) and match[1] in _TOP:
        return f"{_TOP[match[1]]}.{match[2]}"
    return name
