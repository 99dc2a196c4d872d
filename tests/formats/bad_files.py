"""Every kind of bad model file, each made in an empty folder and then opened as a model."""

# ruff: noqa: E501 - the table at the end has one line for each kind

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.gguf_parts import (
    ARRAY,
    BOOL,
    STRING,
    U32,
    Parts,
    alignment_key,
    array,
    key,
    tensor,
    text,
)
from tests.formats.small_model import small_folder, small_gguf, small_split, source
from tests.robustness_table import Kind

from crossinfer.core.dtypes import DType
from crossinfer.formats.gguf_writer import TypedValue, encode_value
from crossinfer.formats.safetensors import SafetensorsFile
from crossinfer.formats.table_formats import TABLE_FORMATS
from crossinfer.formats.tensors import TensorSource
from crossinfer.models.decoder import StepShape
from crossinfer.models.model import load_model

HUGE = (1 << 64) - 1
_STEP = StepShape(1, 1, 1, 1, 2, DType.F16, 8)

Make = Callable[[Path], Path]


def load(path: Path) -> str | None:
    """Open the model and read all its weights, as an engine would; what is noted about it."""
    model = load_model(path)
    for warning in model.warnings:
        warnings.warn(warning, stacklevel=2)
    for constant in model.graph(_STEP).constants.values():
        model.check_finite(constant, model.constant(constant))
    notes = [note for note in model.notes if note not in model.warnings]
    return " ".join(notes) or None


def _kind(area: str, kind: str, make: Make) -> Kind:
    return Kind(area, kind, lambda folder: load(make(folder)))


def _bytes(content: bytes, name: str = "model.gguf") -> Make:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def _parts(**parts: Any) -> Make:
    return _bytes(Parts(**parts).build())


def _metadata(name: str, value: TypedValue | None) -> Make:
    return lambda folder: small_gguf(folder, {name: value})


def _tensors(changed: Mapping[str, TensorSource | None]) -> Make:
    return lambda folder: small_gguf(folder, changed=changed)


def _config(**changes: Any) -> Make:
    return lambda folder: small_folder(folder, changes)


def _changed(make: Make, change: Callable[[bytes], bytes], name: str = "") -> Make:
    """The model with the bytes of its file (or of the file `name` in its folder) changed."""

    def made(folder: Path) -> Path:
        path = make(folder)
        file = path / name if name else path
        file.write_bytes(change(file.read_bytes()))
        return path

    return made


def _weights(entries: bytes | Mapping[str, Any], data: bytes = bytes(32)) -> Make:
    """A folder whose safetensors file has this header."""
    header = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return _raw_weights(len(header).to_bytes(8, "little") + header + data)


def _raw_weights(content: bytes) -> Make:
    return _changed(small_folder, lambda _: content, "model.safetensors")


def _entry(shape: list[Any], begin: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _index(content: Any) -> Make:
    def make(folder: Path) -> Path:
        small_folder(folder)
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))
        return folder

    return make


def _map_with(changes: Mapping[str, str | None]) -> Make:
    """A folder whose index is right but for these tensors."""

    def make(folder: Path) -> Path:
        small_folder(folder)
        names = SafetensorsFile.open(folder / "model.safetensors").tensors
        where: dict[str, str | None] = {**dict.fromkeys(names, "part.safetensors"), **changes}
        found = {name: file for name, file in where.items() if file is not None}
        return _index({"weight_map": found})(folder)

    return make


def _lone_part(folder: Path) -> Path:
    small_folder(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    return folder


def _part_twice(folder: Path) -> Path:
    _map_with({"model.norm.weight": "other.safetensors"})(folder)
    (folder / "other.safetensors").write_bytes((folder / "part.safetensors").read_bytes())
    return folder


def _split(change: Callable[[list[Path]], Path]) -> Make:
    return lambda folder: change(small_split(folder))


def _without(paths: list[Path]) -> Path:
    paths[1].unlink()
    return paths[0]


def _repeated(paths: list[Path]) -> Path:
    paths[1].write_bytes(paths[2].read_bytes())
    return paths[0]


def _swapped(paths: list[Path]) -> Path:
    first = paths[0].read_bytes()
    paths[0].write_bytes(paths[1].read_bytes())
    paths[1].write_bytes(first)
    return paths[0]


def _joined(paths: list[Path]) -> Path:
    joined = paths[0].with_name("joined.gguf")
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    return joined


def _renamed(paths: list[Path]) -> Path:
    return paths[0].rename(paths[0].with_name("model.gguf"))


def _mixed(paths: list[Path]) -> Path:
    small_split(paths[0].parent, 2)[1].rename(paths[1])
    return paths[0]


def _vector(value: float, dtype: DType = DType.F32) -> TensorSource:
    values = np.full((16, 64), 1 / 64, np.float32)
    values[3, 5] = value
    return source("token_embd.weight", values, dtype)


def _blocks(label: str, size: int, fill: int = 0) -> Make:
    """Rows of a quantized type, all bytes `fill`."""
    from crossinfer.formats.ggml_types import STORAGE_BY_ID

    storage = next(kind for kind in STORAGE_BY_ID.values() if kind.label == label)
    rows = np.full((16, storage.bytes_for((size,))), fill, np.uint8)
    made = TensorSource("token_embd.weight", (16, size), storage, lambda: [rows])
    return _tensors({"token_embd.weight": made})


def _wide(label: str) -> Make:
    """The model with an embedding of this type, in rows of 256."""
    storage = next(kind for kind in TABLE_FORMATS if kind.label == label)

    def make(folder: Path) -> Path:
        rows = np.zeros((16, storage.bytes_for((256,))), np.uint8)
        changed: dict[str, TensorSource | None] = {
            "token_embd.weight": TensorSource(
                "token_embd.weight", (16, 256), storage, lambda: [rows]
            )
        }
        for name, shape in {
            "attn_q": (64, 256), "attn_k": (32, 256), "attn_v": (32, 256),
            "attn_output": (256, 64), "attn_norm": (256,), "ffn_norm": (256,),
            "ffn_gate": (64, 256), "ffn_up": (64, 256), "ffn_down": (256, 64),
        }.items():  # fmt: skip
            full = f"blk.0.{name}.weight"
            changed[full] = source(full, np.full(shape, 1 / 64, np.float32))
        changed["output_norm.weight"] = source("output_norm.weight", np.ones(256, np.float32))
        sizes = {
            "llama.embedding_length": np.uint32(256),
            "llama.attention.key_length": np.uint32(16),
        }
        return small_gguf(folder, sizes, changed)

    return make


_OTHER = "Files that are no models"
_DAMAGED = "Damaged GGUF files"
_SPLIT = "Split GGUF models"
_METADATA = "Metadata and configuration"
_TENSORS = "Tensors"
_FOLDERS = "Model folders"

KINDS = (
    _kind(_OTHER, "a web page", _bytes(b"<!DOCTYPE html><html></html>")),
    _kind(_OTHER, "a git-lfs pointer", _bytes(b"version https://git-lfs.github.com/spec/v1\n")),
    _kind(_OTHER, "an empty file", _bytes(b"")),
    _kind(_OTHER, "a zip archive", _bytes(b"PK\3\4" + bytes(100))),
    _kind(_OTHER, "a compressed file", _bytes(b"\x1f\x8b\x08" + bytes(100))),
    _kind(_OTHER, "a pickle", _bytes(b"\x80\x02}q\x00.", "model.bin")),
    _kind(_OTHER, "some text", _bytes(b"hello, world", "model.gguf")),
    _kind(_OTHER, "nothing but zeros", _bytes(bytes(4096))),
    _kind(_OTHER, "no file", lambda folder: folder / "missing.gguf"),
    _kind(_OTHER, "a name too long for a file", lambda folder: folder / ("x" * 300)),
    _kind(_OTHER, "an empty folder", lambda folder: folder),
    _kind(_OTHER, "a lone safetensors file", _bytes(bytes(8), "model.safetensors")),
    _kind(_DAMAGED, "cut in the header", _changed(small_gguf, lambda raw: raw[:300])),
    _kind(_DAMAGED, "cut in the weights", _changed(small_gguf, lambda raw: raw[:-1000])),
    _kind(_DAMAGED, "trailing bytes", _changed(small_gguf, lambda raw: raw + bytes(5))),
    _kind(_DAMAGED, "two files joined", _changed(small_gguf, lambda raw: raw + raw)),
    _kind(_DAMAGED, "version 1", _parts(version=1)),
    _kind(_DAMAGED, "a future version", _parts(version=4)),
    _kind(_DAMAGED, "big-endian", _parts(version=3 << 24)),
    _kind(_DAMAGED, "2^64 - 1 tensors", _parts(tensor_count=HUGE)),
    _kind(_DAMAGED, "2^64 - 1 metadata keys", _parts(key_count=HUGE)),
    _kind(_DAMAGED, "a text of 2^64 - 1 bytes", _parts(keys=(key(b"k", struct.pack("<IQ", STRING, HUGE)),))),
    _kind(_DAMAGED, "an array of 2^60 numbers", _parts(keys=array(U32, 1 << 60, b""))),
    _kind(_DAMAGED, "an array of 2^60 texts", _parts(keys=array(STRING, 1 << 60, b""))),
    _kind(_DAMAGED, "an array of arrays", _parts(keys=array(ARRAY, 1, b""))),
    _kind(_DAMAGED, "an unknown element type", _parts(keys=array(77, 1, b""))),
    _kind(_DAMAGED, "an unknown value type", _parts(keys=(key(b"k", struct.pack("<I", 99)),))),
    _kind(_DAMAGED, "a boolean that is 2", _parts(keys=(key(b"k", struct.pack("<IB", BOOL, 2)),))),
    _kind(_DAMAGED, "a key twice", _parts(keys=(key(b"k", encode_value("k", "v")),) * 2)),
    _kind(_DAMAGED, "a key of bad UTF-8", _parts(keys=(key(b"\xff", encode_value("k", "v")),))),
    _kind(_DAMAGED, "a value of bad UTF-8", _parts(keys=(key(b"k", struct.pack("<I", STRING) + text(b"\xc3(")),))),
    _kind(_DAMAGED, "an element of bad UTF-8", _parts(keys=array(STRING, 3, text(b"a") + text(b"\xff") + text(b"c")))),
    _kind(_DAMAGED, "a tensor's name of bad UTF-8", _parts(tensors=(tensor(name=b"\x80"),))),
    _kind(_DAMAGED, "a tensor's name of 100 kB", _parts(tensors=(tensor(name=b"n" * 100_000, kind=1000),))),
    _kind(_DAMAGED, "alignment as a uint64", _parts(keys=alignment_key(encode_value("", np.uint64(32))))),
    _kind(_DAMAGED, "alignment as text", _parts(keys=alignment_key(encode_value("", "32")))),
    _kind(_DAMAGED, "alignment 0", _parts(keys=alignment_key(encode_value("", np.uint32(0))))),
    _kind(_DAMAGED, "alignment 48", _parts(keys=alignment_key(encode_value("", np.uint32(48))))),
    _kind(_DAMAGED, "a tensor twice", _parts(tensors=(tensor(), tensor(offset=32)), data=bytes(64))),
    _kind(_DAMAGED, "no dimensions", _parts(tensors=(tensor(shape=()),))),
    _kind(_DAMAGED, "2^32 - 1 dimensions", _parts(tensors=(text(b"w") + struct.pack("<I", (1 << 32) - 1),))),
    _kind(_DAMAGED, "a dimension of 0", _parts(tensors=(tensor(shape=(8, 0)),))),
    _kind(_DAMAGED, "a shape whose product overflows", _parts(tensors=(tensor(shape=(1 << 40,) * 4),))),
    _kind(_DAMAGED, "an unaligned offset", _parts(tensors=(tensor(offset=16),))),
    _kind(_DAMAGED, "an offset behind the end", _parts(tensors=(tensor(offset=64),))),
    _kind(_DAMAGED, "an offset that wraps around", _parts(tensors=(tensor(offset=(1 << 64) - 32),))),
    _kind(_DAMAGED, "overlapping tensors", _parts(tensors=(tensor(b"a", (16,)), tensor(b"b", (8,), offset=32)), data=bytes(64))),
    _kind(_DAMAGED, "rows of half a block", _parts(tensors=(tensor(shape=(48, 2), kind=2),))),
    _kind(_DAMAGED, "a type that ggml removed", _parts(tensors=(tensor(kind=31),))),
    _kind(_DAMAGED, "a type of no weights", _parts(tensors=(tensor(kind=24),))),
    _kind(_DAMAGED, "a future type", _parts(tensors=(tensor(kind=1000),))),
    _kind(_SPLIT, "a part is missing", _split(_without)),
    _kind(_SPLIT, "a part other than the first", _split(lambda paths: paths[1])),
    _kind(_SPLIT, "a part twice", _split(_repeated)),
    _kind(_SPLIT, "parts renamed", _split(_swapped)),
    _kind(_SPLIT, "parts joined with cat", _split(_joined)),
    _kind(_SPLIT, "the first part under another name", _split(_renamed)),
    _kind(_SPLIT, "a part of another model", _split(_mixed)),
    _kind(_SPLIT, "fewer tensors than promised", lambda folder: small_split(folder, promised=12)[0]),
    _kind(_SPLIT, "named as a part, but none", lambda folder: small_gguf(folder, name="a-00001-of-00002.gguf")),
    _kind(_SPLIT, "part 7 of 3", lambda folder: small_gguf(folder, {"split.no": np.uint16(6), "split.count": np.uint16(3)})),
    _kind(_SPLIT, "0 parts", lambda folder: small_gguf(folder, {"split.no": np.uint16(0), "split.count": np.uint16(0)})),
    _kind(_METADATA, "no architecture", _metadata("general.architecture", None)),
    _kind(_METADATA, "an architecture that is a number", _metadata("general.architecture", np.uint32(1))),
    _kind(_METADATA, "an unknown architecture", _metadata("general.architecture", "mamba")),
    _kind(_METADATA, "a key is missing", _metadata("llama.block_count", None)),
    _kind(_METADATA, "text instead of a number", _metadata("llama.block_count", "one")),
    _kind(_METADATA, "an array instead of a number", _metadata("llama.block_count", np.arange(5000))),
    _kind(_METADATA, "a boolean instead of a number", _metadata("llama.block_count", True)),
    _kind(_METADATA, "half a layer", _metadata("llama.block_count", np.float32(1.5))),
    _kind(_METADATA, "0 layers", _metadata("llama.block_count", np.uint32(0))),
    _kind(_METADATA, "-1 layers", _metadata("llama.block_count", np.int32(-1))),
    _kind(_METADATA, "4 billion layers", _metadata("llama.block_count", np.uint32(0xFFFF_FFFF))),
    _kind(_METADATA, "0 heads", _metadata("llama.attention.head_count", np.uint32(0))),
    _kind(_METADATA, "heads that KV heads don't divide", _metadata("llama.attention.head_count_kv", np.uint32(3))),
    _kind(_METADATA, "more heads than the model is wide", _metadata("llama.attention.head_count", np.uint32(1000))),
    _kind(_METADATA, "a context of 2^40", _metadata("llama.context_length", np.uint64(1 << 40))),
    _kind(_METADATA, "rope base 0", _metadata("llama.rope.freq_base", np.float32(0))),
    _kind(_METADATA, "rope base NaN", _metadata("llama.rope.freq_base", np.float32("nan"))),
    _kind(_METADATA, "an infinite epsilon", _metadata("llama.attention.layer_norm_rms_epsilon", np.float32("inf"))),
    _kind(_METADATA, "an unknown rope scaling", _metadata("llama.rope.scaling.type", "longrope")),
    _kind(_METADATA, "config.json: a width that the tensors contradict", _config(hidden_size=128)),
    _kind(_METADATA, "config.json: a vocabulary that the tensors contradict", _config(vocab_size=17)),
    _kind(_METADATA, "config.json: more layers than tensors", _config(num_hidden_layers=2)),
    _kind(_METADATA, "config.json: an unknown architecture", _config(model_type="gpt_neox")),
    _kind(_METADATA, "config.json: a number of 400 digits", _config(num_hidden_layers=10**400)),
    _kind(_METADATA, "config.json: NaN", _config(rms_norm_eps=float("nan"))),
    _kind(_METADATA, "config.json: true and false as text", _config(tie_word_embeddings="no")),
    _kind(_METADATA, "config.json: rope scaling of nothing", _config(rope_scaling={"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})),
    _kind(_METADATA, "config.json: quantized weights", _config(quantization_config={"quant_method": "awq"})),
    _kind(_TENSORS, "one is missing", _tensors({"blk.0.ffn_up.weight": None})),
    _kind(_TENSORS, "no embedding", _tensors({"token_embd.weight": None})),
    _kind(_TENSORS, "one that nothing uses", _tensors({"blk.0.odd.weight": source("blk.0.odd.weight", np.zeros(4, np.float32))})),
    _kind(_TENSORS, "a head for another task", _tensors({"cls.weight": source("cls.weight", np.zeros((2, 64), np.float32))})),
    _kind(_TENSORS, "a shape that the metadata contradicts", _tensors({"blk.0.attn_k.weight": source("blk.0.attn_k.weight", np.zeros((64, 64), np.float32))})),
    _kind(_TENSORS, "one weight under two names", _tensors({"x": source("lm_head.weight", np.zeros((16, 64), np.float32)), "y": source("output.weight", np.zeros((16, 64), np.float32))})),
    _kind(_TENSORS, "integers as weights", _tensors({"token_embd.weight": source("token_embd.weight", np.zeros((16, 64), np.int32), DType.I32)})),
    _kind(_TENSORS, "NaN in float32", _tensors({"token_embd.weight": _vector(np.nan)})),
    _kind(_TENSORS, "infinity in float16", _tensors({"token_embd.weight": _vector(np.inf, DType.F16)})),
    _kind(_TENSORS, "NaN in bfloat16", _tensors({"token_embd.weight": _vector(np.nan, DType.BF16)})),
    _kind(_TENSORS, "infinity in a norm", _tensors({"output_norm.weight": source("output_norm.weight", np.full(64, np.inf, np.float32))})),
    _kind(_TENSORS, "NaN in the scale of a block", _blocks("q8_0", 64, 0xFF)),
    _kind(_TENSORS, "infinite rope factors", _tensors({"rope_freqs.weight": source("rope_freqs.weight", np.full(8, np.inf, np.float32))})),
    _kind(_TENSORS, "IQ4_NL", _blocks("iq4_nl", 64)),
    _kind(_TENSORS, "IQ4_XS", _wide("iq4_xs")),
    _kind(_TENSORS, "MXFP4", _blocks("mxfp4", 64)),
    _kind(_TENSORS, "MXFP4 with scales beyond float16's", _blocks("mxfp4", 64, 0x22)),
    _kind(_TENSORS, "MXFP4 with scales that are NaN", _blocks("mxfp4", 64, 0xFF)),
    _kind(_TENSORS, "TQ2_0", _wide("tq2_0")),
    _kind(_TENSORS, "IQ2_XXS", _wide("iq2_xxs")),
    _kind(_FOLDERS, "config.json is a web page", _changed(small_folder, lambda _: b"<html>", "config.json")),
    _kind(_FOLDERS, "config.json is no object", _changed(small_folder, lambda _: b"[1]", "config.json")),
    _kind(_FOLDERS, "config.json has a key twice", _changed(small_folder, lambda _: b'{"a": 1, "a": 2}', "config.json")),
    _kind(_FOLDERS, "config.json is nested 100,000 deep", _changed(small_folder, lambda _: b"[" * 100_000, "config.json")),
    _kind(_FOLDERS, "config.json of bad UTF-8", _changed(small_folder, lambda _: b'{"a": "\xff"}', "config.json")),
    _kind(_FOLDERS, "weights are a git-lfs pointer", _raw_weights(b"version https://git-lfs.github.com/spec/v1\n")),
    _kind(_FOLDERS, "weights are empty", _raw_weights(b"")),
    _kind(_FOLDERS, "a header longer than the file", _raw_weights((1 << 40).to_bytes(8, "little") + b"{}")),
    _kind(_FOLDERS, "a header of 2^64 - 1 bytes", _raw_weights(b"\xff" * 8 + b"{}")),
    _kind(_FOLDERS, "a header that is no JSON", _weights(b"{nothing")),
    _kind(_FOLDERS, "a tensor twice", _weights(b'{"w": {}, "w": {}}')),
    _kind(_FOLDERS, "a range that the shape contradicts", _weights({"w": _entry([4], 0, 32)})),
    _kind(_FOLDERS, "a range behind the end", _weights({"w": _entry([16], 0, 64)})),
    _kind(_FOLDERS, "a negative range", _weights({"w": _entry([8], -32, 0)})),
    _kind(_FOLDERS, "a shape that overflows", _weights({"w": _entry([1 << 62, 1 << 62], 0, 32)})),
    _kind(_FOLDERS, "a size of 4,000 digits", _weights({"w": _entry([10**4000], 0, 32)})),
    _kind(_FOLDERS, "overlapping ranges", _weights({"a": _entry([8], 0, 32), "b": _entry([8], 0, 32)})),
    _kind(_FOLDERS, "bytes of no tensor", _weights({"w": _entry([4], 0, 16)})),
    _kind(_FOLDERS, "an unknown type", _weights({"w": _entry([32], 0, 32, "F8_E4M3")})),
    _kind(_FOLDERS, "a lone part without its index", _lone_part),
    _kind(_FOLDERS, "a part twice", _part_twice),
    _kind(_FOLDERS, "an index without a map", _index({"metadata": {}})),
    _kind(_FOLDERS, "an index to another folder", _index({"weight_map": {"w": "../part.safetensors"}})),
    _kind(_FOLDERS, "an index to a missing file", _index({"weight_map": {"w": "other.safetensors"}})),
    _kind(_FOLDERS, "an index with a tensor too many", _map_with({"w": "part.safetensors"})),
    _kind(_FOLDERS, "an index with a tensor too few", _map_with({"model.norm.weight": None})),
)  # fmt: skip
"""One line each, however long: a table."""
