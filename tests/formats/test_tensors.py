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


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("gap", [0, 1000, 1 << 20])
def test_several_parts_are_released_at_once(tmp_path: Path, gap: int) -> None:
    """Of two files, parts with gaps between them, the last before the others."""
    contents = np.random.default_rng().bytes(SIZE)
    parts = []
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(contents)
        mapped = map_file(tmp_path / name)
        assert mapped == contents
        step = SIZE // 4
        parts += [mapped[n * step : (n + 1) * step - gap] for n in (1, 2, 3, 0)]
    before = resident_file_pages()
    release_pages(*parts, memoryview(b"other"), b"")
    assert resident_file_pages() < before - (2 * SIZE - 8 * gap) // 1024 + 400
    assert all(
        part == contents[n * step : (n + 1) * step - gap]
        for part, n in zip(parts, (1, 2, 3, 0) * 2, strict=True)
    )
