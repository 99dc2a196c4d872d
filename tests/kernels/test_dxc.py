"""The compiler: both targets, errors that say where, and the cache of results."""

from __future__ import annotations

import platform
import shutil
import struct
import tarfile
from pathlib import Path

import pytest

from crossinfer.core.errors import KernelUnsupported
from crossinfer.kernels import binary, fetch_dxc, source
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.dxil_container import checksum
from crossinfer.kernels.shader import ShaderKernel, Target, define

_SWIGLU = ShaderKernel("swiglu", "swiglu.hlsl", 2, 1, 4, 256)


@pytest.fixture
def fresh(compiler: Compiler, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache of shaders, beside a compiler."""
    monkeypatch.setattr(binary, "_compiler", lambda: compiler)
    return empty_cache / "v1" / "shaders"


def test_both_targets(compiler: Compiler) -> None:
    text = source.shader_source("swiglu.hlsl")
    assert compiler.compile(_SWIGLU, text, Target.SPIRV)[:4] == struct.pack("<I", 0x07230203)
    container = compiler.compile(_SWIGLU, text, Target.DXIL)
    assert container[:4] == b"DXBC"
    assert container[4:20] == checksum(container) != bytes(16)


def test_an_error_names_file_line_and_defines(compiler: Compiler) -> None:
    kernel = ShaderKernel("broken[a]", "broken.hlsl", 0, 0, 0, 64, define(WIDTH=3))
    text = '#line 1 "broken.hlsl"\n[numthreads(64, 1, 1)]\nvoid main() { return WIDTH + nothing; }'
    with pytest.raises(KernelUnsupported) as caught:
        compiler.compile(kernel, text, Target.SPIRV)
    for part in ("broken.hlsl:2", "broken[a]", "WIDTH=3", "nothing", "spv"):
        assert part in str(caught.value)


def test_lines_after_an_include_are_the_files_own(compiler: Compiler) -> None:
    text = source.shader_source("swiglu.hlsl").replace("uint i =", "uint i = nowhere +")
    line = next(
        number
        for number, given in enumerate(
            (source.FOLDER / "swiglu.hlsl").read_text(encoding="utf-8").splitlines(), 1
        )
        if "uint i =" in given
    )
    with pytest.raises(KernelUnsupported, match=rf"swiglu\.hlsl:{line}:"):
        compiler.compile(_SWIGLU, text, Target.DXIL)


def test_results_are_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = binary.cached_binary(_SWIGLU, Target.SPIRV)
    assert [entry.name for entry in fresh.iterdir()] == [binary.entry_name(_SWIGLU, Target.SPIRV)]
    monkeypatch.setattr(binary, "_compiler", lambda: pytest.fail("it compiled again"))
    assert binary.cached_binary(_SWIGLU, Target.SPIRV) == code


def test_a_damaged_entry_is_compiled_again(fresh: Path) -> None:
    code = binary.cached_binary(_SWIGLU, Target.SPIRV)
    entry = next(fresh.iterdir())
    entry.write_bytes(entry.read_bytes()[:-8])
    assert binary.cached_binary(_SWIGLU, Target.SPIRV) == code
    assert entry.stat().st_size == len(code) + 32


def test_an_entry_depends_on_source_defines_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = ShaderKernel("swiglu", "swiglu.hlsl", 2, 1, 4, 256, define(WIDTH=3))
    names = {
        binary.entry_name(_SWIGLU, Target.SPIRV),
        binary.entry_name(_SWIGLU, Target.DXIL),
        binary.entry_name(changed, Target.SPIRV),
    }
    monkeypatch.setattr(binary, "shader_source", lambda name: name)
    assert len(names | {binary.entry_name(_SWIGLU, Target.SPIRV)}) == 4


def test_packaged_shaders_need_no_compiler(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = binary.cached_binary(_SWIGLU, Target.SPIRV)
    packaged = tmp_path / "compiled"
    shutil.copytree(fresh, packaged)
    shutil.rmtree(fresh)
    monkeypatch.setattr(binary, "PACKAGED", packaged)
    monkeypatch.setattr(binary, "_compiler", lambda: pytest.fail("it compiled"))
    assert binary.shader_binary(_SWIGLU, Target.SPIRV) == code


def test_no_compiler_is_an_error_that_helps(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del empty_cache
    binary._compiler.cache_clear()
    with pytest.raises(KernelUnsupported, match="make shaders"):
        binary.cached_binary(_SWIGLU, Target.SPIRV)
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(KernelUnsupported, match="pdp11"):
        fetch_dxc.library_path()


def test_a_library_of_another_hash_is_refused(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fetch_dxc._library()[0]
    (tmp_path / name).write_bytes(b"something else")
    archive = tmp_path / "archive.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / name, f"compushady-0.17.5/compushady/backends/{name}")
    monkeypatch.setattr(fetch_dxc, "_download", lambda _: archive)
    with pytest.raises(KernelUnsupported, match="another hash"):
        fetch_dxc.fetch_library()
    assert not list(empty_cache.rglob("*dxcompiler*"))
