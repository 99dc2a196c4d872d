"""`scripts/d3d12-run`: what it passes on, and what it says where it cannot help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "scripts" / "d3d12-run"
TOOLS = (
    *("sh", "uname", "dirname", "readlink", "sha256sum", "cut", "mkdir", "flock"),
    *("echo", "sed", "head", "ldconfig", "mktemp", "rm"),
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="The script is for Linux.")


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RUN), *command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=60,
    )


def test_a_system_that_is_no_debian_is_a_loud_skip(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    done = _run("true", PATH=str(tools), CROSSINFER_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 77
    assert "Direct3D 12 cannot be had here" in done.stderr
    assert "no Debian" in done.stderr


def test_it_wants_a_command() -> None:
    done = _run()
    assert done.returncode == 2
    assert "usage:" in done.stderr


@pytest.mark.skipif("D3D12_RUN" not in os.environ, reason="What it unpacks is not here.")
def test_programs_and_scripts_run_as_they_would(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh -e\necho "$2"; exit 3\n')
    script.chmod(0o755)
    done = _run(str(script), "a", "two words")
    assert (done.returncode, done.stdout) == (3, "two words\n")
    done = _run(sys.executable, "-c", "import sys; print(sys.prefix)")
    assert (done.returncode, done.stdout.strip()) == (0, sys.prefix)
    done = _run("echo", "which the shell has too")
    assert (done.returncode, done.stdout) == (0, "which the shell has too\n")
    assert _run("no-such-command").returncode == 127
