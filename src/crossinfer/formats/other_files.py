"""What a file that should be a model is instead, told by its first bytes."""

from __future__ import annotations

SHOWN = 16
"""Bytes that `what_it_is` looks at, at most."""

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://", "it is a git-lfs pointer, not the file itself; run `git lfs pull`"),
    (b"PK\x03\x04", "it is a zip archive (or a PyTorch checkpoint); unpack or convert it"),
    (b"\x1f\x8b", "it is compressed with gzip; unpack it"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; unpack it"),
    (b"BZh", "it is compressed with bzip2; unpack it"),
    (b"\xfd7zXZ\x00", "it is compressed with xz; unpack it"),
    (b"7z\xbc\xaf", "it is a 7-Zip archive; unpack it"),
    (b"\x80\x02", "it is a pickle, which can run code; convert it to safetensors"),
    (b"\x80\x04", "it is a pickle, which can run code; convert it to safetensors"),
    (b"\x89HDF", "it is an HDF5 file; convert it to safetensors"),
    (b"FUGG", "it is a big-endian GGUF file; take a little-endian one"),
    (b"lmgg", "it is a GGML file, older than GGUF; convert the model again"),
    (b"fmgg", "it is a GGML file, older than GGUF; convert the model again"),
    (b"tjgg", "it is a GGML file, older than GGUF; convert the model again"),
    (b"GGUF", "it is a GGUF file; name it itself, not its folder"),
)


def what_it_is(first: bytes) -> str | None:
    """A clause that says what a file is and what to do, or None if its start tells nothing."""
    if not first:
        return "it is empty; download it again"
    if first.lstrip()[:1] == b"<":
        return "it is a web page, perhaps an error message; download the file itself"
    for start, meaning in _STARTS:
        if first.startswith(start):
            return meaning
    if not any(first):
        return "it begins with zeros, so the download did not finish; download it again"
    return None
