"""A wheel runs on a GPU without the compiler, the cache and the sources that it was made from."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.vulkan_driver import NO_DRIVER, has_driver

from crossinfer.kernels.binary import entry_name
from crossinfer.kernels.catalog import all_shaders
from crossinfer.kernels.shader import Target

ROOT = Path(__file__).parent.parent
SHADERS = "crossinfer/kernels/compiled/"

PROGRAM = """
import crossinfer
from crossinfer import LLM
from crossinfer.graph.tolerance import row_error
from crossinfer.testing.models import write_model
print(crossinfer.__file__)
path = write_model("tiny-llama", "q4_0", "model.gguf")
tokens = list(range(40, 70))
with LLM(path, "reference", context=64) as llm:
    expected = llm.logits(tokens)
with LLM(path, "vulkan", context=64) as llm:
    assert [info.name for info in llm.devices] == ["vulkan"]
    print(row_error(llm.logits(tokens), expected))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it, but with the build backend that is installed here."""
    pytest.importorskip("hatchling")
    if not (ROOT / "scripts" / "build_wheel.py").exists():
        pytest.skip("This is no checkout.")
    folder, before = tmp_path_factory.mktemp("dist"), _products()
    script = str(ROOT / "scripts" / "build_wheel.py")
    command = [sys.executable, script, str(folder), "--no-build-isolation"]
    subprocess.run(command, check=True, timeout=600)
    assert _products() == before
    (built,) = folder.iterdir()
    return built


def _products() -> set[Path]:
    """What building could leave in a checkout."""
    patterns = ("dist/*", "build/*", "src/*.egg-info", f"src/{SHADERS}*")
    return {path for pattern in patterns for path in ROOT.glob(pattern)}


def test_it_carries_every_shader_for_vulkan_and_direct3d(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shaders = {name.removeprefix(SHADERS) for name in names if name.startswith(SHADERS)}
    for target in Target:
        wanted = {entry_name(kernel, target) for kernel in all_shaders()}
        assert {name for name in shaders if name.endswith(target.value)} == wanted
    assert {"spv", "dxil"} == {target.value for target in Target}
    assert not any(name.startswith(("tests", "benchmarks")) for name in names)
    assert not any(name.endswith((".so", ".dll", ".dylib", ".pyc")) for name in names)


def test_it_runs_without_compiler_cache_and_sources(wheel: Path, tmp_path: Path) -> None:
    if not has_driver():
        pytest.skip(NO_DRIVER)
    installed, cache = tmp_path / "installed", tmp_path / "cache"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "CROSSINFER_CACHE": str(cache),
        # Nothing can be fetched.
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    place, error = run.stdout.split()
    assert Path(place).is_relative_to(installed)
    assert float(error) < 1e-4
    assert not (cache / "v1" / "dxc").exists()
    assert not list(cache.rglob("*.spv"))
