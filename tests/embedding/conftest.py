"""`libcrossinfer`, built once a run, and the C programs that use it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.c_compiler import compile_program, missing_for_embedding

from crossinfer.embedding.build import build

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program linked with `libcrossinfer`."""

    path: Path

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end; `environment` is added to ours."""
        return subprocess.run(
            [self.path, *arguments],
            env=os.environ | environment,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def check(self, *arguments: str | Path, **environment: str) -> bytes:
        """What it prints; it must say nothing on stderr and return 0."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, done.stdout.decode(errors="replace") + done.stderr.decode()
        assert done.stderr == b""
        return done.stdout


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`libcrossinfer`, beside its header."""
    reason = missing_for_embedding()
    if reason is not None:
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("libcrossinfer"))


@pytest.fixture(scope="session")
def program(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Compiles a program of `programs/` or an example (`host_cpu/host_cpu`) when first asked."""
    folder, made = tmp_path_factory.mktemp("programs"), dict[str, Program]()

    def make(name: str) -> Program:
        if name not in made:
            source = (EXAMPLES if "/" in name else PROGRAMS) / f"{name}.c"
            flags = ("-I", str(library.parent), "-L", str(library.parent), "-lcrossinfer",
                     f"-Wl,-rpath,{library.parent}", "-pthread", "-ldl")  # fmt: skip
            made[name] = Program(compile_program(source, folder / source.stem, *flags))
        return made[name]

    return make
