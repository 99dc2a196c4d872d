"""C programs that do everything wrong, at once, or in the wrong order."""

from __future__ import annotations

import shutil
import signal
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.embedding.conftest import Program
from tests.tiny_models import TinyModels

from crossinfer.embedding.status import Status

MakeProgram = Callable[[str], Program]


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> Path:
    return tiny_models("tiny-qwen2", "q4_0")


def test_wrong_calls_give_codes(program: MakeProgram, model: Path) -> None:
    assert program("misuse").check(model) == b""


def test_threads_share_models_and_end_each_others_waits(program: MakeProgram, model: Path) -> None:
    assert program("threads").check(model) == b""


@pytest.mark.parametrize(
    "how", ["exit", "return", "shutdown", "thread", "unused", "fork", "named late"]
)
def test_how_a_process_may_begin_and_end(program: MakeProgram, model: Path, how: str) -> None:
    assert program("life").check(how, model) == b"reached\n"


def test_an_interrupt_is_the_hosts(program: MakeProgram, model: Path) -> None:
    done = program("life").run("interrupt", model)
    assert done.returncode == -signal.SIGINT
    assert done.stdout + done.stderr == b""


def test_a_host_that_loads_the_library_itself(
    program: MakeProgram, library: Path, model: Path
) -> None:
    assert program("plugin").check(library, model) == b"reached\n"


def status_of_start(printed: bytes) -> tuple[int, str]:
    code, text = printed.decode().split(" ", 1)
    return int(code), text


def test_the_python_that_is_named_is_used(program: MakeProgram) -> None:
    assert status_of_start(program("life").check("start", sys.executable)) == (Status.OK, "\n")


def test_a_python_that_is_not_there(program: MakeProgram) -> None:
    code, text = status_of_start(program("life").check("start", "/no/such/python3"))
    assert code == Status.PYTHON
    assert "/no/such/python3" in text


def test_a_python_without_the_package(program: MakeProgram, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    code, text = status_of_start(program("life").check("start", tmp_path / "empty/bin/python"))
    assert code == Status.PYTHON
    assert "crossinfer" in text
    assert "pip install" in text


def test_a_python_beside_the_library_comes_before_the_one_that_built_it(
    program: MakeProgram, library: Path, model: Path, tmp_path: Path
) -> None:
    shutil.copy(library, tmp_path)
    venv.create(tmp_path / "python", with_pip=False)
    copied = tmp_path / library.name
    done = program("plugin").run(copied, model)
    assert done.returncode == 1
    assert b"No module named 'crossinfer'" in done.stdout
    printed = program("plugin").check(copied, model, CROSSINFER_PYTHON=sys.executable)
    assert printed == b"reached\n"


def test_a_python_that_cannot_start(program: MakeProgram, tmp_path: Path) -> None:
    """A folder that looks like an environment whose Python is gone ends no process."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text("")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path}/gone\n")
    (tmp_path / "lib").mkdir()
    code, text = status_of_start(program("life").check("start", python))
    assert code == Status.PYTHON
    assert text.strip()


def test_what_the_environment_says_of_python_is_not_ours(
    program: MakeProgram, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "LC_ALL": "C"}
    assert program("life").check("shutdown", model, **environment) == b"reached\n"


def test_the_python_of_the_environment_variable(program: MakeProgram, model: Path) -> None:
    done = program("life").run("return", model, CROSSINFER_PYTHON="/no/such/python3")
    assert done.returncode != 0
    assert b"There is no Python at /no/such/python3" in done.stdout
    printed = program("life").check("return", model, CROSSINFER_PYTHON=sys.executable)
    assert printed == b"reached\n"
