"""The safetensors reader and writer against the `safetensors` package, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import FormatError
from crossinfer.formats.blocks import Q4_0
from crossinfer.formats.safetensors import SafetensorsFile, write_safetensors
from crossinfer.formats.tensors import TensorSource

VALUES = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)


def test_we_read_what_the_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    arrays: dict[str, Any] = {
        "f32": VALUES,
        "f16": VALUES.astype(np.float16),
        "i32": np.arange(5, dtype=np.int32),
        "scalar": np.array(2.5, dtype=np.float32),
    }
    safetensors.numpy.save_file(arrays, path, metadata={"format": "pt"})
    file = SafetensorsFile.open(path)
    assert file.metadata == {"format": "pt"}
    assert file.tensors.keys() == arrays.keys()
    for name in ("f32", "f16", "scalar"):
        np.testing.assert_array_equal(file.tensors[name].to_float32(), arrays[name])
    assert file.tensors["i32"].storage is DType.I32
    assert bytes(file.tensors["i32"].data) == arrays["i32"].tobytes()
    assert file.tensors["f32"].data.readonly


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    dtypes = (DType.F16, DType.F32, DType.BF16)
    sources = [TensorSource.from_array(dtype.label, VALUES, dtype) for dtype in dtypes]
    write_safetensors(path, sources, {"format": "pt"})
    deserialize: Any = safetensors.deserialize
    entries = dict(deserialize(path.read_bytes()))
    ours = SafetensorsFile.open(path)
    assert list(ours.tensors) == ["f16", "f32", "bf16"]
    for name, tensor in ours.tensors.items():
        assert entries[name]["dtype"] == name.upper()
        assert entries[name]["shape"] == [2, 3, 4]
        assert bytes(entries[name]["data"]) == bytes(tensor.data)
        np.testing.assert_allclose(tensor.to_float32(), VALUES, rtol=2**-8)


def test_blocks_and_repeated_names_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    blocks = TensorSource("w", (32,), Q4_0, lambda: [np.zeros(18, np.uint8)])
    with pytest.raises(ValueError, match="cannot hold q4_0"):
        write_safetensors(path, [blocks])
    plain = TensorSource.from_array("w", VALUES, DType.F32)
    with pytest.raises(ValueError, match="w is given twice"):
        write_safetensors(path, [plain, plain])
    assert not list(tmp_path.iterdir())


def entry(
    begin: Any = 0, end: Any = 16, shape: Any = (4,), dtype: Any = "F32"
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def build(header: object, data: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "header length": (b"\xff" * 8 + bytes(20), "claims a header of 18446744073709551615 bytes"),
    "not JSON": (build(b"{nothing"), "not valid JSON"),
    "not UTF-8": (build(b'{"\xff": 1}'), "not valid JSON"),
    "nested": (build(b"[" * 100_000), "not valid JSON: too deeply nested"),
    "long number": (build(b'{"w": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "a list": (build([1]), "not a JSON object"),
    "key twice": (
        build(b'{"w": ' + json.dumps(entry()).encode() + b', "w": 1}'),
        "'w' is there twice",
    ),
    "metadata": (build({"__metadata__": {"a": 1}, "w": entry()}), "__metadata__ is not"),
    "no object": (build({"w": 3}), "'w' is not described"),
    "dtype": (build({"w": entry(dtype="F8_E4M3")}), "'w' is stored as 'F8_E4M3'"),
    "odd dtype": (build({"w": entry(dtype=["F32"])}), "'w' is stored as"),
    "shape": (build({"w": entry(shape="4")}), "'w' has the shape '4'"),
    "negative shape": (build({"w": entry(shape=[-2, -2])}), "'w' has the shape"),
    "boolean shape": (build({"w": entry(shape=[True, 4])}), "'w' has the shape"),
    "offsets": (build({"w": {**entry(), "data_offsets": [0]}}), "'w' has the data_offsets"),
    "fraction": (build({"w": entry(end=16.0)}), "'w' has the data_offsets"),
    "backwards": (build({"w": entry(begin=16, end=0)}), "'w' takes 16 bytes"),
    "size": (build({"w": entry(shape=[5])}), r"'w' takes 20 bytes as F32 \[5\]"),
    "huge": (build({"w": entry(shape=[1 << 62, 1 << 62])}), "'w' takes"),
    "cut": (build({"w": entry()}, bytes(15)), "'w' ends at byte 16 of a data section of 15"),
    "overlap": (
        build({"a": entry(), "b": entry(8, 24)}, bytes(24)),
        "'a' and 'b' overlap",
    ),
    "hole": (build({"a": entry(), "b": entry(32, 48)}, bytes(48)), "16 of 48 data bytes"),
    "rest": (build({"w": entry()}, bytes(17)), "1 of 17 data bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, tmp_path: Path) -> None:
    raw, message = REFUSED[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=message) as caught:
        SafetensorsFile.open(path)
    assert str(path) in str(caught.value)


VALID = build({"a": entry(), "b": entry(16, 24, [2, 2], "BF16")}, bytes(24))


@settings(max_examples=200)
@given(position=st.integers(0, len(VALID) - 1), replacement=st.binary(min_size=1, max_size=3))
def test_a_changed_file_opens_or_is_refused(
    position: int, replacement: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes(VALID[:position] + replacement + VALID[position + len(replacement) :])
    try:
        file = SafetensorsFile.open(path)
    except FormatError:
        return
    for stored in file.tensors.values():
        assert stored.size_in_bytes == stored.storage.bytes_for(stored.shape)
