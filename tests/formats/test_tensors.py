"""Mapped files: their bytes, and the memory that they take."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from crossinfer.formats.tensors import map_file, release_pages

SIZE = 32 << 20


def resident_file_pages() -> int:
    """Kilobytes of mapped files that are in this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


@pytest.mark.parametrize(("start", "end"), [(0, SIZE), (5001, SIZE - 77), (0, 0), (4096, 4097)])
def test_released_pages_come_back(tmp_path: Path, start: int, end: int) -> None:
    contents = np.random.default_rng().bytes(SIZE)
    (tmp_path / "file").write_bytes(contents)
    mapped = map_file(tmp_path / "file")
    assert mapped == contents
    before = resident_file_pages() if sys.platform == "linux" else 0
    release_pages(mapped[start:end])
    if sys.platform == "linux" and end - start > 1 << 20:
        assert resident_file_pages() < before - (SIZE // 1024 - 200)
    assert mapped == contents


@pytest.mark.parametrize("data", [b"bytes", memoryview(bytearray(8192)), np.ones(5000), None])
def test_what_is_no_mapped_file_is_left_alone(data: object) -> None:
    release_pages(data)
