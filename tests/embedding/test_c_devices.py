"""Models on a host's own device, through the C interface."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.embedding.conftest import Program
from tests.tiny_models import TinyModels
from tests.vulkan_driver import open_vulkan_or_skip

from crossinfer import LLM

D3D12_RUN = Path(__file__).parents[2] / "scripts" / "d3d12-run"
SKIPPED = 77


def test_a_python_process_lends_its_vulkan_device(library: Path, tiny_models: TinyModels) -> None:
    model = tiny_models("tiny-qwen2", "f32")
    with open_vulkan_or_skip() as device, LLM(model, device) as llm:
        expected = llm.generate("Once upon a time", max_tokens=6).tokens
    command = [sys.executable, "-m", "tests.embedding.vulkan_host", str(library), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    tokens, times = done.stdout.splitlines()
    assert tuple(map(int, tokens.split())) == expected
    assert int(times) > 6


@pytest.mark.skipif(sys.platform != "linux", reason="The script is for Linux.")
def test_the_example_lends_its_direct3d_device(
    program: Callable[[str], Program], tiny_models: TinyModels
) -> None:
    """It checks its own results, its bounds and its references itself; see host_d3d12.c."""
    model = tiny_models("tiny-qwen2", "f32")
    with LLM(model, "cpu", context=64) as llm:
        expected = llm.generate("Once", max_tokens=8).text
    host = program("host_d3d12/host_d3d12").path
    command: list[str | Path] = [D3D12_RUN, host, model, "Once"]
    # Other tests verify kernels; on a software driver that takes longer than everything here.
    environment = os.environ | {"CROSSINFER_VERIFY": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{expected}\n"
    assert "the host's device works on" in done.stderr
