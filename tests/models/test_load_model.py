"""Loading models: what is refused, with which words, and what is accepted."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_models import TinyModels

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.models.gguf_config import checkpoint_name
from crossinfer.models.model import load_model


def gguf_with(path: Path, changes: Mapping[str, Any]) -> GGUFFile:
    """The file at `path` as if its metadata had these values; None takes a key out."""
    file = GGUFFile.open(path)
    metadata = {k: v for k, v in {**file.metadata, **changes}.items() if v is not None}
    return dataclasses.replace(file, metadata=metadata)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported; llama, qwen2"),
        ({"general.architecture": None}, "general.architecture is missing"),
        ({"qwen3.block_count": None}, "qwen3.block_count is missing"),
        ({"qwen3.block_count": 0}, "layers is 0"),
        ({"qwen3.block_count": 3}, "no tensor model.layers.2."),
        ({"qwen3.block_count": 1}, "tensor 'model.layers.1.*' is not part of the architecture"),
        ({"qwen3.attention.head_count": "six"}, "head_count is 'six', not a number"),
        ({"qwen3.attention.head_count_kv": 4}, "cannot share 4 KV heads"),
        ({"qwen3.attention.layer_norm_rms_epsilon": 0.0}, "norm_eps is 0.0"),
        ({"qwen3.rope.freq_base": float("nan")}, "freq_base is nan, not a number"),
        ({"qwen3.rope.scaling.type": "longrope"}, "'longrope' is not supported"),
        ({"qwen3.feed_forward_length": 100}, "has the shape .* make it"),
        (
            {
                "qwen3.rope.scaling.type": "yarn",
                "qwen3.rope.scaling.factor": 4.0,
                "qwen3.rope.scaling.attn_factor": 2.0,
            },
            "attn_factor is 2.0; only 1 is supported",
        ),
        ({"qwen3.attention.value_length": 8}, "only equal ones are supported"),
    ],
)
def test_gguf_metadata_that_is_refused(
    changes: dict[str, Any], message: str, tiny_models: TinyModels
) -> None:
    path = tiny_models("tiny-qwen3")
    with pytest.raises(FormatError, match=message) as caught:
        load_model(gguf_with(path, changes))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_neox"}, "architecture 'gpt_neox' is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported; only 'silu' is"),
        ({"use_sliding_window": True}, "use_sliding_window = True is not supported"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5, not a whole number"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "'dynamic' is not supported"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        ({"vocab_size": 7}, "model.embed_tokens.weight has the shape"),
    ],
)
def test_huggingface_config_that_is_refused(
    changes: dict[str, Any], message: str, tiny_models: TinyModels, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_models("tiny-qwen2", container="safetensors"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(FormatError, match=message):
        load_model(folder)


def test_config_of_transformers_4(tiny_models: TinyModels, tmp_path: Path) -> None:
    """rope_theta and rope_scaling at the top level say the same as rope_parameters."""
    folder = tiny_models("tiny-llama", container="safetensors", rope_scaling="llama3")
    modern = load_model(folder).config
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    config = json.loads((older / "config.json").read_text())
    rope = config.pop("rope_parameters", None) or config["rope_scaling"]
    config["rope_theta"] = rope.pop("rope_theta", config.get("rope_theta"))
    config["rope_scaling"] = rope
    (older / "config.json").write_text(json.dumps(config))
    assert load_model(older).config == modern


def test_tied_and_untied_embeddings(tiny_models: TinyModels) -> None:
    for tied in (True, False):
        for container in ("gguf", "safetensors"):
            path = tiny_models(
                "tiny-llama",
                container=container,
                tie_embeddings=tied,
            )
            model = load_model(path)
            assert model.config.tied_embeddings is tied
            assert ("lm_head.weight" in model.weights) is not tied


def test_checkpoint_names() -> None:
    assert checkpoint_name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"
    assert checkpoint_name("output.weight") == "lm_head.weight"
    assert checkpoint_name("blk.0.something_else.weight") == "blk.0.something_else.weight"


def test_yarn_borders_are_read(tiny_models: TinyModels) -> None:
    changes = {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 4.0,
        "qwen3.rope.scaling.yarn_beta_fast": 20.0,
        "qwen3.rope.scaling.yarn_beta_slow": 2.0,
    }
    scaling = load_model(gguf_with(tiny_models("tiny-qwen3"), changes)).config.rope_scaling
    assert scaling is not None
    assert (scaling.beta_fast, scaling.beta_slow) == (20.0, 2.0)
