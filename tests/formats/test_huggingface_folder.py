"""Model folders: one file or shards, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import FormatError
from crossinfer.formats.huggingface import INDEX_FILE, SINGLE_FILE, HuggingFaceFolder
from crossinfer.formats.safetensors import write_safetensors
from crossinfer.formats.tensors import TensorSource

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def source(name: str) -> TensorSource:
    return TensorSource.from_array(name, np.full((2, 2), len(name), np.float32), DType.F32)


def change_json(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | changes))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    change_json(tmp_path / "config.json", model_type="llama")
    write_safetensors(tmp_path / FIRST, [source("a"), source("ccc")])
    write_safetensors(tmp_path / SECOND, [source("bb")])
    change_json(tmp_path / INDEX_FILE, weight_map={"a": FIRST, "bb": SECOND, "ccc": FIRST})
    return tmp_path


def test_the_shards_of_an_index_are_one_set_of_tensors(sharded: Path) -> None:
    folder = HuggingFaceFolder.open(sharded)
    assert folder.config == {"model_type": "llama"}
    assert list(folder.tensors) == ["a", "bb", "ccc"]
    for name, tensor in folder.tensors.items():
        np.testing.assert_array_equal(tensor.to_float32(), np.full((2, 2), len(name)))


def test_what_a_folder_lacks_is_none(sharded: Path) -> None:
    folder = HuggingFaceFolder.open(sharded)
    assert folder.generation_config is None
    assert folder.tokenizer is None
    assert folder.tokenizer_config is None
    assert folder.chat_template is None


def test_one_file_and_everything_beside_it(sharded: Path) -> None:
    write_safetensors(sharded / SINGLE_FILE, [source("only")])
    change_json(sharded / "generation_config.json", top_k=3)
    change_json(sharded / "tokenizer.json")
    change_json(sharded / "tokenizer_config.json", chat_template="from the configuration")
    folder = HuggingFaceFolder.open(sharded)
    assert list(folder.tensors) == ["only"]
    assert folder.generation_config == {"top_k": 3}
    assert folder.tokenizer == sharded / "tokenizer.json"
    assert folder.chat_template == "from the configuration"
    (sharded / "chat_template.jinja").write_text("from its file ✓", encoding="utf-8")
    assert HuggingFaceFolder.open(sharded).chat_template == "from its file ✓"


def test_the_default_of_several_chat_templates_is_taken(sharded: Path) -> None:
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    change_json(sharded / "tokenizer_config.json", chat_template=templates)
    assert HuggingFaceFolder.open(sharded).chat_template == "d"


def _index(**weight_map: Any) -> Callable[[Path], None]:
    return lambda path: change_json(path / INDEX_FILE, weight_map=weight_map)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda path: (path / "config.json").unlink(), r"no file .*config\.json"),
    "config": (
        lambda path: (path / "config.json").write_text("{"),
        r"config\.json is not valid JSON",
    ),
    "quantized": (
        lambda path: change_json(path / "config.json", quantization_config={"quant_method": "awq"}),
        "quantized with 'awq'",
    ),
    "no weights": (lambda path: (path / INDEX_FILE).unlink(), "has neither"),
    "no map": (lambda path: change_json(path / INDEX_FILE, weight_map=[]), "weight_map is not"),
    "no shard": (lambda path: (path / SECOND).unlink(), "no file .*00002-of-00002"),
    "missing": (_index(a=FIRST, bb=SECOND, ccc=FIRST, d=SECOND), "lacks tensor 'd'"),
    "surplus": (_index(a=FIRST, bb=SECOND), "holds tensor 'ccc'"),
    "elsewhere": (_index(a="../" + FIRST), r"'a' is in '\.\./model"),
    "no name": (_index(a=""), "'a' is in ''"),
    "odd name": (_index(a=3), "'a' is in 3"),
    "template": (
        lambda path: change_json(path / "tokenizer_config.json", chat_template=3),
        "chat_template is not text",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, sharded: Path) -> None:
    change, message = REFUSED[case]
    change(sharded)
    with pytest.raises(FormatError, match=message) as caught:
        HuggingFaceFolder.open(sharded)
    assert str(sharded) in str(caught.value)


def test_pickled_weights_are_named(sharded: Path) -> None:
    (sharded / INDEX_FILE).unlink()
    (sharded / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FormatError, match="pickles"):
        HuggingFaceFolder.open(sharded)
