"""Tensors in files: a view of a mapped one, and a description of one to be written."""

from __future__ import annotations

import ctypes
import functools
import mmap
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from crossinfer.core.dtypes import Array, DType, encode_scalars
from crossinfer.core.errors import FormatError
from crossinfer.core.records import entity
from crossinfer.formats.blocks import StorageType, dequantize
from crossinfer.formats.table_formats import FileType, TableFormat, as_blocks, convert


def map_file(path: Path) -> memoryview:
    """The bytes of the file at `path`, mapped read-only.

    There is no close: the mapping lives as long as any view of it (this one, a slice, a NumPy
    array over one) and goes with the last, so that a view can never dangle. On Windows the file
    cannot be deleted until then. A file that another process cuts short while it is mapped makes
    the operating system end this process; replace model files by renaming.

    Raises FormatError if there is no such file or it cannot be read.
    """
    try:
        # Before it is opened: to open a named pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise FormatError(f"{path} is not a regular file, so it cannot be mapped.")
        with open(path, "rb") as file:
            if file.seek(0, 2) == 0:
                return memoryview(b"")  # an empty file cannot be mapped
            return memoryview(_MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise FormatError(f"There is no file {path}; check the path.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"The file {path} cannot be read: {error}.") from error


class _MappedFile(mmap.mmap):
    """A file that is only read: any page of it may leave memory, and comes back when it is read."""


def release_pages(*parts: object) -> None:
    """Let go of the memory behind parts of mapped files that are not about to be read again.

    Else what was read once counts as this process's memory for as long as the file is mapped. Does
    nothing to data that is not a memoryview of a mapped file, or where the system has no such call.
    Parts in the order in which they lie in the file are let go of together, and small ones are
    kept, which spares calls that stop every core.
    """
    _advise("MADV_DONTNEED", parts)


def release_files(parts: Iterable[object]) -> None:
    """As `release_pages`, of all of the mapped files that have any of these parts."""
    files = {id(part.obj): part.obj for part in parts if isinstance(part, memoryview)}
    release_pages(*(memoryview(file) for file in files.values()))


def prefetch_pages(*parts: object) -> None:
    """Have the system read parts of a mapped file that are about to be read. A hint, as above."""
    _advise("MADV_WILLNEED", parts)


_GAP_BYTES = 1 << 16
"""Parts that are no further apart count as one: what is between them can be read again. And a part
that is smaller is not worth a call.
"""


def _advise(advice: str, parts: Iterable[object]) -> None:
    number = getattr(mmap, advice, None)
    if number is None:
        return
    for file, start, end in _extents(parts):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if end - start >= _GAP_BYTES:
            _system_madvise()(_address(file) + first, end - first, number)


@functools.cache
def _system_madvise() -> Callable[[int, int, int], int]:
    """The C library's. That of `mmap` keeps other threads from running meanwhile: a millisecond for
    some megabytes.
    """
    call = ctypes.CDLL(None).madvise
    call.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return cast(Callable[[int, int, int], int], call)


def _extents(parts: Iterable[object]) -> Iterator[tuple[_MappedFile, int, int]]:
    """The files that parts are of, with the bytes from where to where; near ones joined."""
    file: _MappedFile | None = None
    base = start = end = 0
    for part in parts:
        if not isinstance(part, memoryview) or not isinstance(part.obj, _MappedFile):
            continue
        if not part.nbytes:
            continue
        is_same = part.obj is file
        if not is_same and file is not None:
            yield file, start, end
        if not is_same:
            file, base = part.obj, _address(part.obj)
        at = _address(part) - base
        if is_same and end <= at <= end + _GAP_BYTES:
            end = at + part.nbytes
            continue
        if is_same:
            yield part.obj, start, end
        start, end = at, at + part.nbytes
    if file is not None:
        yield file, start, end


def _address(memory: mmap.mmap | memoryview) -> int:
    address: int = np.frombuffer(memory, dtype=np.uint8).__array_interface__["data"][0]
    return address


@entity
class StoredTensor:
    """One tensor of a model file.

    `shape` is row-major, outermost dimension first (GGUF stores it the other way round). `data` is
    a read-only view of the mapped file: `storage.bytes_for(shape)` bytes, rows one after another.
    """

    name: str
    shape: tuple[int, ...]
    storage: FileType
    data: memoryview

    @property
    def size_in_bytes(self) -> int:
        return self.data.nbytes

    @functools.cached_property
    def loaded_as(self) -> StorageType:
        """What the tensor is when it is loaded: its storage, or what that is converted to.

        For MXFP4 the scales decide, so that all of them are read.
        """
        if isinstance(self.storage, TableFormat):
            return self.storage.choose(as_blocks(self.data, self.storage))
        return self.storage

    def load(self) -> memoryview | Array:
        """The bytes as `loaded_as`; a view of the file unless they are converted."""
        if isinstance(self.storage, TableFormat):
            converted = convert(self.data, self.storage, self.loaded_as)
            release_pages(self.data)
            return converted
        return self.data

    def to_float32(self) -> Array:
        """The values as float32 of `shape`; for float32 storage a view of the file, not a copy.

        Raises FormatError for integers, which float32 could not always hold.
        """
        if self.storage is DType.I32:
            raise FormatError(f"Tensor {self.name} holds i32, where a weight was expected.")
        with np.errstate(all="ignore"):  # infinite scales in a damaged file: the values say so
            return dequantize(self.load(), self.loaded_as, self.shape)


@entity
class TensorSource:
    """A tensor to be written, whose bytes are produced when the writer gets to it.

    `chunks()` yields arrays of any type whose bytes, one after another, are the tensor's storage.
    """

    name: str
    shape: tuple[int, ...]
    storage: FileType
    chunks: Callable[[], Iterable[Array]]

    @classmethod
    def from_array(cls, name: str, values: Array, dtype: DType) -> TensorSource:
        """`values`, rounded to `dtype` when they are written."""
        return cls(name, values.shape, dtype, lambda: [encode_scalars(values, dtype)])

    @property
    def size_in_bytes(self) -> int:
        return self.storage.bytes_for(self.shape)

    def write_to(self, file: BinaryIO) -> None:
        """Append the tensor's bytes to `file`. Raises ValueError if `chunks` gave another size."""
        written = 0
        for chunk in self.chunks():
            raw = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
            written += raw.size
            file.write(raw.data)
        if written != self.size_in_bytes:
            raise ValueError(
                f"tensor {self.name}: {written} bytes were produced, not {self.size_in_bytes}"
            )


def overlapping(extents: Iterable[tuple[int, int, str]]) -> Iterator[tuple[str, str]]:
    """Pairs of names whose (begin, end, name) byte ranges share a byte."""
    last_end, last_name = 0, ""
    for begin, end, name in sorted(extents):
        if begin < last_end:
            yield last_name, name
        if end > last_end:
            last_end, last_name = end, name
