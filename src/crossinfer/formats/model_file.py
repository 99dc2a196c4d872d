"""Opens a model by its path, whatever it is stored as."""

from __future__ import annotations

from pathlib import Path

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import MAGIC, GGUFFile
from crossinfer.formats.huggingface import HuggingFaceFolder

ModelFile = GGUFFile | HuggingFaceFolder


def open_model_file(path: Path | str) -> ModelFile:
    """The GGUF file or the model folder at `path`.

    Raises FormatError: the message says what is at `path` and what could be named instead.
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise FormatError(f"There is no file or folder {path}; check the path.")
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        raise FormatError(
            f"{path} holds only weights; name the folder that it is in ({path.parent}), which also "
            "has config.json and tokenizer.json."
        )
    try:
        with open(path, "rb") as file:
            first = file.read(len(MAGIC))
    except OSError as error:
        raise FormatError(f"The file {path} cannot be read: {error}.") from error
    if first == MAGIC:
        return GGUFFile.open(path)
    begins = f"it begins with {first!r}" if first else "it is empty"
    raise FormatError(
        f"{path} is not a model that crossinfer reads: {begins}, where a GGUF file begins with "
        f"{MAGIC!r}. Name a GGUF file or a folder with config.json and safetensors."
    )


def _open_folder(path: Path) -> HuggingFaceFolder:
    if not (path / "config.json").exists():
        files = sorted(file.name for file in path.glob("*.gguf"))
        if files:
            raise FormatError(f"{path} is a folder of GGUF files; name one: {', '.join(files)}.")
        raise FormatError(
            f"{path} has no config.json, so it is not a model folder; name a GGUF file or a folder "
            "with config.json and safetensors."
        )
    return HuggingFaceFolder.open(path)
