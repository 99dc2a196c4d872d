"""Damaged and unsupported GGUF files: each is refused with a message that names the culprit."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from crossinfer.core.errors import FormatError
from crossinfer.formats.gguf import GGUFFile
from crossinfer.formats.gguf_writer import encode_value

HUGE = (1 << 64) - 1
REFUSED: dict[str, tuple[Parts, str]] = {
    "magic": (Parts(magic=b"GGML"), r"not a GGUF file.*b'GGML'"),
    "version 1": (Parts(version=1), "version 1 of GGUF"),
    "version 4": (Parts(version=4), "version 4 of GGUF"),
    "big endian": (Parts(version=3 << 24), "big-endian"),
    "tensor count": (Parts(tensor_count=HUGE), "list of 18446744073709551615 tensors"),
    "key count": (Parts(key_count=HUGE), "list of 18446744073709551615 metadata keys"),
    "key type": (Parts(keys=(key(b"odd", struct.pack("<I", 99)),)), "'odd' has the unknown type"),
    "key twice": (Parts(keys=(key(b"k", encode_value("k", "v")),) * 2), "'k' is there twice"),
    "key name": (Parts(keys=(key(b"\xff\xfe", encode_value("k", "v")),)), "name of metadata key 0"),
    "text": (
        Parts(keys=(key(b"k", struct.pack("<I", STRING) + text(b"\xc3(")),)),
        "'k' is not valid UTF-8",
    ),
    "text length": (
        Parts(keys=(key(b"k", struct.pack("<IQ", STRING, HUGE)),)),
        "'k' claims 18446744073709551615 bytes",
    ),
    "text end": (
        Parts(keys=(key(b"k", struct.pack("<IQ", STRING, 500)),)),
        "'k' needs at least 500 bytes",
    ),
    "boolean": (
        Parts(keys=(key(b"k", struct.pack("<IB", BOOL, 2)),)),
        "'k' holds 2, but a boolean is 0 or 1",
    ),
    "array count": (Parts(keys=array(U32, HUGE, b"")), "'some.list' needs at least"),
    "array of text count": (Parts(keys=array(STRING, HUGE, b"")), "'some.list' needs at least"),
    "array element type": (Parts(keys=array(77, 1, b"")), "'some.list' has elements of"),
    "array of arrays": (Parts(keys=array(ARRAY, 1, b"")), "'some.list' is an array of arrays"),
    "array text": (
        Parts(keys=array(STRING, 3, text(b"a") + text(b"\xff") + text(b"c"))),
        r"'some.list' is not valid UTF-8 near element 1",
    ),
    "array text end": (
        Parts(keys=array(STRING, 2, text(b"a") + struct.pack("<Q", HUGE))),
        "element 1 of .*'some.list' goes past the end",
    ),
    "alignment type": (
        Parts(keys=alignment_key(encode_value("", np.uint64(32)))),
        "'general.alignment' is not a uint32",
    ),
    "alignment text": (
        Parts(keys=alignment_key(encode_value("", "32"))),
        "'general.alignment' is not a uint32",
    ),
    "alignment zero": (
        Parts(keys=alignment_key(encode_value("", np.uint32(0)))),
        "'general.alignment' is 0, not a power of two",
    ),
    "alignment odd": (
        Parts(keys=alignment_key(encode_value("", np.uint32(48)))),
        "'general.alignment' is 48, not a power of two",
    ),
    "no dimensions": (Parts(tensors=(tensor(shape=()),)), "'w' has 0 dimensions"),
    "dimensions": (Parts(tensors=(tensor(shape=(1,) * 5),)), "'w' has 5 dimensions"),
    "empty": (Parts(tensors=(tensor(shape=(8, 0)),)), r"'w' has the shape \(0, 8\)"),
    "other type": (Parts(tensors=(tensor(shape=(256,), kind=9),)), "'w' is stored as Q8_1"),
    "removed type": (Parts(tensors=(tensor(shape=(256,), kind=31),)), "is stored as Q4_0_4_4"),
    "bytes behind the end": (Parts(data=bytes(72)), "40 bytes follow the last tensor, from byte"),
    "joined with cat": (
        Parts(data=bytes(32) + Parts().build()),
        "another GGUF file begins at byte .* must not be joined",
    ),
    "unknown type": (Parts(tensors=(tensor(kind=1000),)), "'w' is stored as type 1000"),
    "part of a block": (
        Parts(tensors=(tensor(shape=(48, 2), kind=2),)),
        "'w' has rows of 48 elements, but Q4_0 stores whole blocks of 32",
    ),
    "tensor twice": (
        Parts(tensors=(tensor(), tensor(offset=32))),
        "tensor 'w' is there twice",
    ),
    "tensor name": (Parts(tensors=(tensor(name=b"\x80"),)), "name of tensor 0 is not valid UTF-8"),
    "misaligned": (Parts(tensors=(tensor(offset=16),)), "'w' is at offset 16"),
    "out of the file": (Parts(tensors=(tensor(offset=64),)), "'w' ends at byte 96"),
    "offset": (Parts(tensors=(tensor(offset=(1 << 64) - 32),)), "'w' ends at byte"),
    "shape product": (Parts(tensors=(tensor(shape=(1 << 40,) * 4),)), "'w' ends at byte"),
    "no data": (Parts(data=b""), "'w' ends at byte 32 of a data section of 0 bytes"),
    "overlap": (
        Parts(tensors=(tensor(b"a", (16,)), tensor(b"b", (8,), offset=32)), data=bytes(64)),
        "tensors 'a' and 'b' overlap",
    ),
    "inside another": (
        Parts(tensors=(tensor(b"in", (1,), offset=32), tensor(b"out", (16,))), data=bytes(64)),
        "tensors 'out' and 'in' overlap",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, tmp_path: Path) -> None:
    parts, message = REFUSED[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(parts.build())
    with pytest.raises(FormatError, match=message) as caught:
        GGUFFile.open(path)
    assert str(path) in str(caught.value)


def test_the_parts_are_valid_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(Parts(keys=array(STRING, 1, text(b"a"))).build())
    assert list(GGUFFile.open(path).tensors) == ["w"]


RICH = Parts(
    keys=(
        key(b"general.architecture", encode_value("", "llama")),
        key(b"tokens", encode_value("", [f"token {n}" for n in range(20)])),
        key(b"types", encode_value("", np.arange(20, dtype=np.int32))),
        key(b"flag", encode_value("", True)),
    ),
    tensors=(tensor(b"a", (8, 2)), tensor(b"b", (32,), kind=2, offset=64)),
    data=bytes(96),
).build()


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for length in range(len(RICH) - 14):  # the last 14 bytes are padding
        path.write_bytes(RICH[:length])
        with pytest.raises(FormatError):
            GGUFFile.open(path)


@settings(max_examples=300)
@given(
    position=st.integers(0, len(RICH) - 97),
    replacement=st.one_of(
        st.binary(min_size=1, max_size=4),
        st.sampled_from([b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"\0\0\0\0\0\0\0\x80"]),
    ),
)
def test_a_changed_file_opens_or_is_refused(
    position: int, replacement: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(RICH[:position] + replacement + RICH[position + len(replacement) :])
    try:
        file = GGUFFile.open(path)
    except FormatError:
        return
    for stored in file.tensors.values():
        assert stored.size_in_bytes == stored.storage.bytes_for(stored.shape)
