"""Every shader that a lowering may choose compiles, and is what its description says."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.kernels.spirv import read_interface

from crossinfer.kernels.binary import cached_binary
from crossinfer.kernels.catalog import all_shaders
from crossinfer.kernels.dxc import Compiler
from crossinfer.kernels.shader import ShaderKernel, Target

SHADERS = tuple(all_shaders())
_SHADER_CAPABILITY = 1
_DOT_CAPABILITIES = {6018, 6019}


def test_names_tell_shaders_apart() -> None:
    assert len({shader.name for shader in SHADERS}) == len(set(SHADERS)) == len(SHADERS)


@pytest.mark.parametrize("shader", SHADERS, ids=lambda shader: shader.name)
def test_spirv_fits_the_description(compiler: Compiler, shader: ShaderKernel) -> None:
    del compiler
    found = read_interface(cached_binary(shader, Target.SPIRV))
    assert found.version <= (1, 3)
    dots = _DOT_CAPABILITIES if shader.integer_dots else set()
    assert found.capabilities == {_SHADER_CAPABILITY} | dots  # nothing else that a driver may lack
    assert found.entry == shader.entry
    assert found.group_size == (shader.group_size, 1, 1)
    assert shader.group_size <= 256
    assert found.bindings <= set(itertools.product([0], range(shader.reads + shader.writes)))
    assert {(0, shader.reads + j) for j in range(shader.writes)} <= found.bindings
    assert found.constant_bytes == shader.constant_bytes <= 128
    assert found.shared_bytes <= shader.shared_bytes <= 32768


@pytest.mark.parametrize("source", sorted({shader.source for shader in SHADERS}))
def test_dxil(compiler: Compiler, source: str) -> None:
    del compiler
    for shader in SHADERS:
        if shader.source == source:
            container = cached_binary(shader, Target.DXIL)
            assert container[:4] == b"DXBC"
            assert int.from_bytes(container[24:28], "little") == len(container)


def test_spirv_is_valid(compiler: Compiler, tmp_path: Path) -> None:
    del compiler
    validator = shutil.which("spirv-val")
    if validator is None:
        pytest.skip("There is no spirv-val here (on Debian: apt-get install spirv-tools).")
    for shader in SHADERS:
        module = tmp_path / "module.spv"
        module.write_bytes(cached_binary(shader, Target.SPIRV))
        command = [validator, "--target-env", "vulkan1.1", str(module)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{shader.name}: {done.stderr}"
