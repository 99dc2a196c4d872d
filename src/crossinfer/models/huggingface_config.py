"""ModelConfig from a Hugging Face folder's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossinfer.core.errors import FormatError, shown
from crossinfer.models.config import ModelConfig, RopeScaling
from crossinfer.models.keys import Keys

# What a config may ask for that changes the results and that no architecture here does.
_MUST_BE = {"hidden_act": "silu", "mlp_bias": False, "use_sliding_window": False}
_ROPE_MUST_BE = {"mscale": None, "mscale_all_dim": None, "partial_rotary_factor": 1.0}


def huggingface_architecture(config: Mapping[str, Any], where: str) -> str:
    """The name in model_type. Raises FormatError."""
    name = Keys(config, where).text("model_type")
    if name is None:
        raise FormatError(f"{where}: model_type is missing, so the model is unknown.")
    return name


def config_from_huggingface(config: Mapping[str, Any], where: str) -> ModelConfig:
    """The configuration in a config.json, as transformers 4 or 5 writes it. Raises FormatError."""
    keys = Keys(config, where)
    architecture = huggingface_architecture(config, where)
    _refuse_unsupported(keys, _MUST_BE)
    if architecture == "llama":
        _refuse_unsupported(keys, {"attention_bias": False})
    # transformers 5 keeps the base and the scaling together in rope_parameters.
    values = keys.get("rope_parameters") or keys.get("rope_scaling") or {}
    if not isinstance(values, Mapping):
        raise FormatError(f"{where}: the rotary parameters are {shown(values)}, not an object.")
    rope = Keys(values, where)
    _refuse_unsupported(rope, _ROPE_MUST_BE)
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    context = keys.integer("max_position_embeddings")
    return ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=keys.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=keys.integer("num_key_value_heads", heads),
        head_dim=keys.integer("head_dim", hidden // max(heads, 1)),
        feed_forward=keys.integer("intermediate_size"),
        vocabulary=keys.integer("vocab_size"),
        context=context,
        norm_eps=keys.number("rms_norm_eps"),
        rope_base=rope.number("rope_theta", keys.number("rope_theta", 10000.0)),
        rope_scaling=_scaling(rope, context),
        tied_embeddings=keys.flag("tie_word_embeddings"),
    ).validate(where)


def _refuse_unsupported(keys: Keys, supported: Mapping[str, Any]) -> None:
    for key, value in supported.items():
        given = keys.get(key)
        if given is not None and given != value:
            only = "" if value is None else f"; only {value!r} is"
            raise FormatError(f"{keys.where}: {key} = {shown(given)} is not supported{only}.")


def _scaling(rope: Keys, context: int) -> RopeScaling | None:
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn"):
        raise FormatError(
            f"{rope.where}: the rotary scaling {shown(kind)} is not supported; "
            "linear, llama3 and yarn are."
        )
    attention = rope.get("attention_factor")
    return RopeScaling(
        kind=kind,
        factor=rope.positive("factor"),
        original_context=rope.integer("original_max_position_embeddings", context),
        low_freq_factor=rope.number("low_freq_factor", 1.0),
        high_freq_factor=rope.number("high_freq_factor", 4.0),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        attention_factor=None if attention is None else rope.number("attention_factor"),
    )
