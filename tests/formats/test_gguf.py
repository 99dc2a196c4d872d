"""The GGUF reader and writer against the `gguf` package and each other."""

from __future__ import annotations

import string
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import FormatError
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.formats.ggml_types import STORAGE_BY_ID, type_name
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_metadata import Cursor, read_metadata
from crossinfer.formats.gguf_writer import encode_value, write_gguf
from crossinfer.formats.table_formats import TABLE_FORMATS
from crossinfer.formats.tensors import TensorSource

STORAGES = (DType.F32, DType.F16, DType.BF16, DType.I32, *BLOCK_FORMATS)


def raw_source(name: str, storage: StorageType, shape: tuple[int, ...], seed: int) -> TensorSource:
    size = storage.bytes_for(shape)
    raw = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return TensorSource(name, shape, storage, lambda: [raw[: size // 2], raw[size // 2 :]])


def raw_of(data: memoryview) -> Array:
    return np.frombuffer(data, dtype=np.uint8)


def one_key(path: Path, key: str) -> Any:
    return GGUFFile.open(path).metadata[key]


@pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.label)
def test_both_readers_agree_on_what_we_write(storage: StorageType, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    sources = [
        raw_source("first.weight", storage, (3, 512), 1),
        raw_source("second.weight", DType.F32, (5,), 2),
        raw_source("third.weight", storage, (2, 3, 256), 3),
    ]
    write_gguf(path, {"general.architecture": "llama", "llama.n": np.uint32(7)}, sources)
    ours, theirs = GGUFFile.open(path), gguf.GGUFReader(path)
    assert (ours.version, ours.metadata["llama.n"]) == (3, 7)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(tensor.shape[::-1].tolist())
        assert mine.storage.label.upper() == tensor.tensor_type.name
        assert mine.size_in_bytes == tensor.n_bytes
        assert mine.data.readonly
        np.testing.assert_array_equal(raw_of(mine.data), tensor.data.reshape(-1).view(np.uint8))


def test_we_read_what_the_gguf_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    numbers = {
        "uint8": 200, "int8": -3, "uint16": 60000, "int16": -300, "uint32": 1 << 31,
        "int32": -(1 << 30), "uint64": 1 << 63, "int64": -(1 << 62), "float32": 0.5,
        "float64": 0.1,
    }  # fmt: skip
    for kind, number in numbers.items():
        getattr(writer, f"add_{kind}")(f"key.{kind}", number)
    writer.add_bool("key.yes", True)
    writer.add_string("key.text", "naïve ✓ \0 text")
    tokens = ["", "a", "Ġthe", "x" * 70000, "\0", "日本"]
    writer.add_array("key.tokens", tokens)
    writer.add_array("key.numbers", [1, -2, 3])
    writer.add_array("key.scores", [0.5, -1.25])
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    writer.add_tensor("w", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(path)
    for kind, number in numbers.items():
        assert file.metadata[f"key.{kind}"] == number
        assert type(file.metadata[f"key.{kind}"]) is type(number)
    assert file.metadata["key.yes"] is True
    assert file.metadata["key.text"] == "naïve ✓ \0 text"
    assert file.metadata["key.tokens"] == tokens
    np.testing.assert_array_equal(file.metadata["key.numbers"], [1, -2, 3])
    np.testing.assert_array_equal(file.metadata["key.scores"], [0.5, -1.25])
    np.testing.assert_array_equal(file.tensors["w"].to_float32(), weights)


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"a": "b"}, [raw_source("w", DType.F16, (2, 8), 0)])
    raw = bytearray(path.read_bytes())
    raw[4:8] = struct.pack("<I", 2)
    path.write_bytes(raw)
    file = GGUFFile.open(path)
    assert (file.version, file.metadata["a"], file.tensors["w"].shape) == (2, "b", (2, 8))


def test_the_files_alignment_is_used(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    sources = [raw_source("a", DType.F32, (1,), 0), raw_source("b", DType.F32, (3,), 1)]
    write_gguf(path, {"general.alignment": np.uint32(512)}, sources)
    assert path.stat().st_size == 3 * 512
    tensors = GGUFFile.open(path).tensors
    for source in sources:
        expected = np.concatenate(list(source.chunks()))
        np.testing.assert_array_equal(raw_of(tensors[source.name].data), expected)


def test_a_file_without_padding_after_its_last_tensor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {}, [raw_source("w", DType.F32, (3,), 0)])
    path.write_bytes(path.read_bytes()[: -(32 - 12)])
    assert GGUFFile.open(path).tensors["w"].size_in_bytes == 12


def test_views_outlive_the_file_object(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    source = raw_source("w", DType.F32, (64,), 0)
    write_gguf(path, {}, [source])
    view = raw_of(GGUFFile.open(path).tensors["w"].data)
    np.testing.assert_array_equal(view, np.concatenate(list(source.chunks())))


def test_integers_have_no_float_values(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {}, [raw_source("ids", DType.I32, (3,), 0)])
    with pytest.raises(FormatError, match="ids holds i32"):
        GGUFFile.open(path).tensors["ids"].to_float32()


def test_type_numbers_are_those_of_ggml() -> None:
    for kind in gguf.GGMLQuantizationType:
        assert type_name(kind.value) == kind.name
    assert type_name(99) == "type 99"
    assert len(STORAGE_BY_ID) == len(STORAGES) + len(TABLE_FORMATS)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.one_of(
    st.integers(0, 255).map(np.uint8),
    st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.floats(allow_nan=False).map(np.float64),
)
number_lists = st.lists(st.integers(-1000, 1000), max_size=9).map(
    lambda values: np.array(values, dtype=np.int16)
)
boolean_lists = st.lists(st.booleans(), max_size=9).map(
    lambda values: np.array(values, dtype=np.bool_)
)
values = st.one_of(
    texts, st.booleans(), numbers, number_lists, boolean_lists, st.lists(texts, max_size=40)
)


@given(metadata=st.dictionaries(texts, values, max_size=6))
def test_metadata_comes_back(metadata: dict[str, Any]) -> None:
    raw = b""
    for key, value in metadata.items():
        name = key.encode()
        raw += struct.pack("<Q", len(name)) + name + encode_value(key, value)
    cursor = Cursor(memoryview(raw), Path("memory"))
    result, _ = read_metadata(cursor, len(metadata))
    assert cursor.at == len(raw)
    assert list(result) == list(metadata)
    for key, value in metadata.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(np.asarray(result[key]), value)
        else:
            assert result[key] == value


@given(tokens=st.lists(st.text(string.printable + "Ġé", min_size=1, max_size=300), min_size=1))
def test_vocabularies_come_back_with_bytes_after_them(tokens: list[str]) -> None:
    raw = encode_value("tokens", tokens)[4 + 4 + 8 :]
    cursor = Cursor(memoryview(raw + bytes(range(100))), Path("memory"))
    assert cursor.strings(len(tokens), "tokens") == tokens
    assert cursor.at == len(raw)


@pytest.mark.parametrize("length", [(1 << 16) + 5, (1 << 24) + 5])
def test_a_long_string_is_not_taken_for_a_short_one(length: int) -> None:
    """Of five bytes, as the length's last two have it, behind which others would begin."""
    inner = encode_value("tokens", ["zz"] * 20)[4 + 4 + 8 :]
    long = ("hello" + inner.decode()).ljust(length, "y")
    for tokens in (["ab"] * 8000 + [long], ["ab", long, *["cd"] * 10]):
        raw = encode_value("tokens", tokens)[4 + 4 + 8 :]
        cursor = Cursor(memoryview(raw + bytes(range(100))), Path("memory"))
        assert cursor.strings(len(tokens), "tokens") == tokens
        assert cursor.at == len(raw)


@pytest.mark.parametrize("value", [3, 0.5, [1, 2], np.zeros((2, 2), np.int8), np.complex64(1)])
def test_values_without_a_plain_type_are_not_written(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"some\.key"):
        write_gguf(tmp_path / "model.gguf", {"some.key": value}, [])
    assert not list(tmp_path.iterdir())


def test_a_tensor_of_another_size_than_declared_is_not_written(tmp_path: Path) -> None:
    source = TensorSource("w", (4,), DType.F32, lambda: [np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="w: 12 bytes"):
        write_gguf(tmp_path / "model.gguf", {}, [source])
    assert not list(tmp_path.iterdir())
