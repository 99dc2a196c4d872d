"""The digest of our own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossinfer.core import sources
from crossinfer.core.sources import sources_digest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernels" / "hlsl").mkdir(parents=True)
    (tmp_path / "kernels" / "a.py").write_text("a")
    (tmp_path / "kernels" / "hlsl" / "b.hlsl").write_text("b")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c.py").write_text("c")
    monkeypatch.setattr(sources, "_ROOT", tmp_path)
    return tmp_path


def digest(*folders: str) -> str:
    sources_digest.cache_clear()
    return sources_digest(*folders)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    sources_digest.cache_clear()


@pytest.mark.parametrize("name", ["a.py", "hlsl/b.hlsl", "new.py", "hlsl/new.hlsli"])
def test_a_change_of_code_changes_it(root: Path, name: str) -> None:
    before = digest("kernels")
    (root / "kernels" / name).write_text("changed")
    assert digest("kernels") != before


def test_what_is_not_code_or_elsewhere_leaves_it(root: Path) -> None:
    before = digest("kernels")
    (root / "kernels" / "notes.txt").write_text("x")
    (root / "kernels" / "__pycache__").mkdir()
    (root / "kernels" / "__pycache__" / "a.pyc").write_text("x")
    (root / "other" / "c.py").write_text("changed")
    assert digest("kernels") == before


def test_a_file_that_moves_changes_it(root: Path) -> None:
    before = digest("kernels", "other")
    (root / "other" / "c.py").rename(root / "kernels" / "c.py")
    (root / "kernels" / "c.py").rename(root / "kernels" / "d.py")
    assert digest("kernels", "other") != before


def test_ours_is_the_same_each_time() -> None:
    assert digest("kernels", "graph") == digest("kernels", "graph") != digest("graph")


def teardown_module() -> None:
    sources_digest.cache_clear()
