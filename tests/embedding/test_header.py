"""The header: every compiler takes it, and the Python half has the same numbers."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import pytest
from tests.c_compiler import compiler_or_skip

from crossinfer import LLM
from crossinfer.embedding.build import HEADER
from crossinfer.embedding.options import ANSWER_OPTIONS, MODEL_OPTIONS
from crossinfer.embedding.status import FINISH_REASONS, Status
from crossinfer.engine.sampling import SamplingOptions


@pytest.mark.parametrize(
    ("compiler", "language"),
    [("cc", "c99"), ("cc", "c11"), ("cc", "c17"), ("c++", "c++11"), ("c++", "c++20")],
)
def test_the_header_is_plain_c_and_cpp(tmp_path: Path, compiler: str, language: str) -> None:
    source = tmp_path / ("host.cpp" if compiler == "c++" else "host.c")
    source.write_text(
        '#include "crossinfer.h"\n#include "crossinfer.h"\n'
        "int main(void) { return crossinfer_shutdown() == CROSSINFER_OK ? 0 : 1; }\n"
    )
    command = [compiler_or_skip(compiler), f"-std={language}", "-Wall", "-Wextra", "-pedantic",
               "-Werror", "-I", str(HEADER.parent), "-c", str(source), "-o",
               str(tmp_path / "host.o")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_codes_are_those_of_the_header() -> None:
    text = HEADER.read_text()
    found = {name: int(value) for name, value in re.findall(r"CROSSINFER_(\w+) = (-?\d+)", text)}
    reasons = {name: found.pop(name) for name in ("STOPPED", "LENGTH", "CANCELLED")}
    assert found == {status.name: status.value for status in Status}
    assert sorted(FINISH_REASONS.values()) == sorted(reasons.values())


def test_options_are_those_of_the_python_interface_and_of_the_header() -> None:
    # A C program waits: what is wrong with a model is told where it is opened.
    others = {"self", "model", "progress", "wait"}
    assert set(MODEL_OPTIONS) == set(inspect.signature(LLM.__init__).parameters) - others
    assert set(ANSWER_OPTIONS) == {"max_tokens", "stop", *SamplingOptions.__annotations__}
    comments = " ".join(HEADER.read_text().split())
    for name in (*MODEL_OPTIONS, *ANSWER_OPTIONS):
        assert f'"{name}"' in comments
