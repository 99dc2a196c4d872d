"""Opens a model by its path, whatever it is stored as."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import MAGIC, GGUFFile
from crossinfer.formats.gguf_split import join_parts
from crossinfer.formats.other_files import SHOWN, what_it_is

if TYPE_CHECKING:
    from crossinfer.formats.huggingface import HuggingFaceFolder

ModelFile: TypeAlias = "GGUFFile | HuggingFaceFolder"


def open_model_file(path: Path | str) -> ModelFile:
    """The GGUF file or the model folder at `path`.

    The first part of a split model stands for all its parts; any other is opened alone. Raises
    FormatError: the message says what is at `path` and what could be named instead.
    """
    path = Path(path)
    # os.path's functions also answer for names that no file can have.
    if os.path.isdir(path):
        return _open_folder(path)
    if not os.path.exists(path):
        raise FormatError(f"There is no file or folder {path}; check the path.")
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        raise FormatError(
            f"{path} holds only weights; name the folder that it is in ({path.parent}), which also "
            "has config.json and tokenizer.json."
        )
    try:
        if not os.path.isfile(path):
            raise FormatError(f"{path} is neither a file nor a folder; name a model.")
        with open(path, "rb") as file:
            first = file.read(SHOWN)
    except OSError as error:
        raise FormatError(f"The file {path} cannot be read: {error}.") from error
    if first.startswith(MAGIC):
        return join_parts(GGUFFile.open(path))
    problem = what_it_is(first) or (
        f"it begins with {first[:4]!r}, where a GGUF file begins with {MAGIC!r}; name a GGUF file "
        "or a folder with config.json and safetensors"
    )
    raise FormatError(f"{path} is not a model that crossinfer reads: {problem}.")


def _open_folder(path: Path) -> HuggingFaceFolder:
    if not (path / "config.json").exists():
        files = sorted(file.name for file in path.glob("*.gguf"))
        if files:
            raise FormatError(f"{path} is a folder of GGUF files; name one: {', '.join(files)}.")
        raise FormatError(
            f"{path} has no config.json, so it is not a model folder; name a GGUF file or a folder "
            "with config.json and safetensors."
        )
    from crossinfer.formats.huggingface import HuggingFaceFolder  # files do without

    return HuggingFaceFolder.open(path)
