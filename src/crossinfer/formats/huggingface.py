"""Opens model folders as Hugging Face's `transformers` saves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossinfer.core.errors import FormatError, shown
from crossinfer.core.records import entity
from crossinfer.formats.json_file import read_object, read_object_if_any, read_small_file
from crossinfer.formats.safetensors import SafetensorsFile
from crossinfer.formats.tensors import StoredTensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@entity
class HuggingFaceFolder:
    """An open model folder. What the folder lacks is None, except config.json and the weights.

    `tokenizer` is the path of tokenizer.json; `chat_template` the Jinja source, from
    chat_template.jinja or else tokenizer_config.json.
    """

    path: Path
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] | None
    tokenizer: Path | None
    tokenizer_config: Mapping[str, Any] | None
    chat_template: str | None
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path | str) -> HuggingFaceFolder:
        """Read the folder's JSON files and map its weights.

        Raises FormatError for missing or damaged files, and for quantized checkpoints.
        """
        path = Path(path)
        if not path.is_dir():
            raise FormatError(f"There is no folder {path}; check the path.")
        config = read_object(path / "config.json")
        _refuse_quantized(path, config)
        tokenizer = path / "tokenizer.json"
        tokenizer_config = read_object_if_any(path / "tokenizer_config.json")
        return cls(
            path=path,
            config=config,
            generation_config=read_object_if_any(path / "generation_config.json"),
            tokenizer=tokenizer if tokenizer.is_file() else None,
            tokenizer_config=tokenizer_config,
            chat_template=_read_chat_template(path, tokenizer_config),
            tensors=_read_tensors(path),
        )


def _refuse_quantized(path: Path, config: Mapping[str, Any]) -> None:
    quantization = config.get("quantization_config")
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    named = shown(method) if method else "an unnamed method"
    raise FormatError(
        f"{path} is quantized with {named}, which is not supported; take the original checkpoint "
        "(float32, float16 or bfloat16) or a GGUF file."
    )


def _read_chat_template(path: Path, tokenizer_config: Mapping[str, Any] | None) -> str | None:
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return str(read_small_file(file), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"The file {file} cannot be read: {error}.") from error
    template = (tokenizer_config or {}).get("chat_template")
    if isinstance(template, list):  # several named ones, as tool-calling models once had
        named = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        }
        template = named.get("default")
    if template is None or isinstance(template, str):
        return template
    raise FormatError(f"{path / 'tokenizer_config.json'}: chat_template is not text.")


def _read_tensors(path: Path) -> Mapping[str, StoredTensor]:
    if (path / SINGLE_FILE).exists():
        return SafetensorsFile.open(path / SINGLE_FILE).tensors
    if (path / INDEX_FILE).exists():
        return _read_shards(path, path / INDEX_FILE)
    advice = "download the whole model folder"
    if any(path.glob("pytorch_model*.bin")):
        advice = "its .bin files are pickles, which can run code, so convert them to safetensors"
    raise FormatError(f"{path} has neither {SINGLE_FILE} nor {INDEX_FILE}; {advice}.")


def _read_shards(path: Path, index: Path) -> dict[str, StoredTensor]:
    """The tensors of all shards, in the index's order."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{index}: weight_map is not a map from tensors to files.")
    shards: dict[str, SafetensorsFile] = {}
    for name, shard in weight_map.items():
        # Only files of the folder itself: an index must not reach elsewhere.
        if not isinstance(shard, str) or shard in ("", "..") or Path(shard).name != shard:
            raise FormatError(
                f"{index}: tensor {shown(name)} is in {shown(shard)}, which is no file name."
            )
        if shard not in shards:
            shards[shard] = SafetensorsFile.open(path / shard)
        if name not in shards[shard].tensors:
            raise FormatError(
                f"{path / shard} lacks tensor {shown(name)}, which {INDEX_FILE} places there; "
                "download the model folder again."
            )
    for shard, file in shards.items():
        for name in file.tensors:
            if weight_map.get(name) != shard:
                raise FormatError(
                    f"{path / shard} holds tensor {shown(name)}, which {INDEX_FILE} does not place "
                    "there; download the model folder again."
                )
    return {name: shards[shard].tensors[name] for name, shard in weight_map.items()}
