"""Opening a model by its path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.formats.small_model import small_folder

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_writer import write_gguf
from crossinfer.formats.huggingface import HuggingFaceFolder
from crossinfer.formats.model_file import open_model_file
from crossinfer.formats.safetensors import write_safetensors


def test_what_is_at_the_path_decides(tmp_path: Path) -> None:
    write_gguf(tmp_path / "any.name", {"a": "b"}, [])
    write_safetensors(tmp_path / "model.safetensors", [])
    (tmp_path / "config.json").write_text("{}")
    assert isinstance(open_model_file(tmp_path / "any.name"), GGUFFile)
    assert isinstance(open_model_file(str(tmp_path)), HuggingFaceFolder)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no file or folder .*nothing\.gguf"):
        open_model_file(tmp_path / "nothing.gguf")


def test_for_a_file_of_weights_its_folder_is_to_be_named(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.safetensors.index.json"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(FormatError, match="name the folder that it is in") as caught:
            open_model_file(tmp_path / name)
        assert f"({tmp_path})" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\3\4 and more", "it is a zip archive"),
        (b"", "it is empty"),
        (b"\n<!DOCTYPE html>", "it is a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "run `git lfs pull`"),
        (b"some text", "it begins with b'some'"),
        (bytes(100), "it begins with zeros"),
    ],
)
def test_other_files_are_refused_by_their_first_bytes(
    content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(FormatError, match=said):
        open_model_file(tmp_path / "model.bin")


def test_a_folder_of_gguf_files_lists_them(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"has no config\.json"):
        open_model_file(tmp_path)
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(FormatError, match=r"name one: a\.gguf, b\.gguf"):
        open_model_file(tmp_path)


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes here")
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(FormatError, match="neither a file nor a folder"):
        open_model_file(tmp_path / "model.gguf")
    small_folder(tmp_path)
    for name, said in (
        ("model.safetensors", "not a regular file"),
        ("config.json", "not a regular"),
    ):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(FormatError, match=said):
            open_model_file(tmp_path)
