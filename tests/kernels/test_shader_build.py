"""The build step of a checkout and of a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossinfer.kernels import binary, build
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.fetch_dxc import fetch_library
from crossinfer.kernels.row_ops import _SWIGLU
from crossinfer.kernels.shader import Target


@pytest.fixture
def one_shader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "all_shaders", lambda: iter([_SWIGLU]))


@pytest.mark.usefixtures("one_shader")
def test_a_wheel_built_once_needs_no_compiler(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del compiler
    assert build.main([str(tmp_path / "compiled")]) == 0
    assert len(list((tmp_path / "compiled").iterdir())) == len(Target)
    monkeypatch.setenv("CROSSINFER_CACHE", str(tmp_path / "users"))
    monkeypatch.setattr(binary, "PACKAGED", tmp_path / "compiled")
    binary._compiler.cache_clear()
    assert binary.shader_binary(_SWIGLU, Target.SPIRV)
    assert binary.shader_binary(_SWIGLU, Target.DXIL)


@pytest.mark.usefixtures("one_shader")
def test_nothing_is_fetched_if_nothing_is_missing(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    del compiler
    build.build()
    monkeypatch.setattr(build, "fetch_library", lambda: pytest.fail("it fetched"))
    assert build.build() == len(Target)


@pytest.mark.usefixtures("one_shader", "empty_cache")
def test_a_failure_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert build.main([]) == 1
    assert "pdp11" in capsys.readouterr().err


def test_the_library_is_fetched_once(compiler: Compiler) -> None:
    del compiler
    path = fetch_library()
    before = path.stat().st_mtime_ns
    assert fetch_library() == path
    assert path.stat().st_mtime_ns == before
