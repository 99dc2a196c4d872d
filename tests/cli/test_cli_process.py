"""The command as a process: how it starts, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.tiny_models import TinyModels

from crossinfer.cli.failures import EXIT_BROKEN_PIPE, EXIT_FAILED, EXIT_INTERRUPTED

MAIN = "from crossinfer.cli.app import main; main()"
# Prints the modules that are there when `main` ends, whatever it does.
MODULES_AFTER_MAIN = """
import atexit, sys
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
from crossinfer.cli.app import main
main()
"""
# Tells when a kernel is tried, which then takes long; verdicts lie where the first argument says.
TRYING = """
import signal, sys, time
from pathlib import Path
from crossinfer.cli.app import main
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify import trial

def slow(*_, **__):
    print("trying", flush=True)
    time.sleep(60)

store = VerdictStore(Path(sys.argv.pop(1)))
VerdictStore.default = lambda: store
trial.verify_op = slow
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
main()
"""
# Takes as long to end as its input does to say so.
ENDING = """
import signal, sys, time
from crossinfer.cli.failures import end_in_order

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as above
end_in_order()
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("ending", flush=True)
    sys.stdin.readline()
    print("ended", flush=True)
"""
needs_signals = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@contextlib.contextmanager
def start(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, main: str = MAIN
) -> Iterator[subprocess.Popen[str]]:
    """The command, with pipes; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", main, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        # A test run in the background ignores SIGINT, and its children would too.
        preexec_fn=None if os.name == "nt" else _heed_interrupts,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_do_not_load_the_engine(argument: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER_MAIN, argument],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "crossinfer" in done.stdout
    heavy = {"numpy", "tokenizers", "jinja2", "crossinfer.engine", "crossinfer.core.dtypes"}
    assert not heavy & set(done.stderr.splitlines())


def test_a_run_loads_only_what_its_model_and_device_need(tiny_models: TinyModels) -> None:
    arguments = ["run", "--device", "cpu", "--raw", "--max-tokens", "1", "once"]
    for _ in range(2):  # the first one may have to compile kernels and look at their results
        done = subprocess.run(
            [sys.executable, "-c", MODULES_AFTER_MAIN, *arguments, "-m", tiny_models("tiny-llama")],
            capture_output=True,
            text=True,
            check=True,
        )
    loaded = set(done.stderr.splitlines())
    assert "crossinfer.backends.cpu.device" in loaded
    others = (
        *("crossinfer.backends.vulkan", "crossinfer.backends.d3d12", "crossinfer.kernels"),
        *("crossinfer.backends.reference", "crossinfer.backends.null", "crossinfer.embedding"),
        *("crossinfer.engine.automatic", "crossinfer.engine.suspects", "crossinfer.cli.bench"),
        *("crossinfer.formats.huggingface", "crossinfer.text.huggingface_tokenizer"),
        *("crossinfer.engine.demo_model_fetch", "crossinfer.verify.trial", "crossinfer.testing"),
        *("crossinfer.jit.builder", "crossinfer.backends.cpu.kernels.linear_kernel"),
        *("llvmlite.binding", "llvmlite.ir", "huggingface_hub", "jinja2", "rich", "cffi"),
        *("crossinfer.engine.slices", "crossinfer.engine.scoring", "crossinfer.models.surplus"),
        *("subprocess", "zipfile", "urllib.request", "numpy.typing", "platformdirs", "tempfile"),
    )
    assert not loaded.intersection(others)


def long_answer(model: Path) -> list[str]:
    """Arguments for an answer that takes a while: a CPU's own kernels would take a tenth of it."""
    where = ["--device", "reference", "-m", str(model)]
    return ["run", "--raw", *where, "--max-tokens", "240", "once"]


@needs_signals
def test_interrupt_ends_with_what_was_said(tiny_models: TinyModels) -> None:
    with start(long_answer(tiny_models("tiny-llama"))) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        said += process.stdout.read()
        assert process.wait(20) == EXIT_INTERRUPTED
        assert said.endswith("\n")
        assert len(said) > 1
        assert process.stderr.read() == ""


@needs_signals
def test_interrupt_with_json_prints_the_object(tiny_models: TinyModels) -> None:
    arguments = [*long_answer(tiny_models("tiny-llama")), "--json"]
    with start(arguments, {"CROSSINFER_DEBUG": "2"}) as process:
        assert process.stderr is not None
        # At this level each step is told, so the answer is on its way once there is one.
        while not process.stderr.readline().startswith("step:"):
            pass
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == EXIT_INTERRUPTED
    assert json.loads(out)["finish_reason"] == "cancelled"


@needs_signals
def test_interrupt_while_loading_is_silent(tmp_path: Path) -> None:
    # A pipe that nobody writes to: the prompt never comes.
    with start(["run", "-m", str(tmp_path), "-"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.8)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == EXIT_INTERRUPTED
        assert process.communicate() == ("", "")


@needs_signals
@pytest.mark.parametrize(("name", "noted"), [("SIGTERM", 0), ("SIGHUP", 0), ("SIGKILL", 1)])
def test_who_is_asked_to_end_blames_no_kernel(
    tiny_models: TinyModels, tmp_path: Path, name: str, noted: int
) -> None:
    number = getattr(signal, name)
    model = str(tiny_models("tiny-llama"))
    arguments = [str(tmp_path / "verdicts.json"), "run", "--device", "cpu", "-m", model, "once"]
    with start(arguments, main=TRYING) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "trying\n"
        attempts = tmp_path / "attempts"
        assert len(list(attempts.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(20) == (128 + number if noted == 0 else -number)
        assert process.communicate() == ("", "")
    assert len(list(attempts.iterdir())) == noted


@needs_signals
@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ("SIGHUP", "SIGHUP", True),
        ("SIGTERM", "SIGHUP", True),
        ("SIGTERM", "SIGTERM", False),
        ("SIGHUP", "SIGTERM", False),
    ],
)
def test_only_another_sigterm_keeps_a_process_from_ending_in_order(
    first: str, second: str, ends: bool
) -> None:
    numbers = getattr(signal, first), getattr(signal, second)
    with start([], main=ENDING) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(numbers[0])
        assert process.stdout.readline() == "ending\n"
        process.send_signal(numbers[1])
        assert process.communicate("\n", 20) == ("ended\n" if ends else "", "")
        assert process.returncode == (128 + numbers[0] if ends else -numbers[1])


@needs_signals
def test_broken_pipe_is_silent(tiny_models: TinyModels) -> None:
    with start(long_answer(tiny_models("tiny-llama"))) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(20) == EXIT_BROKEN_PIPE
        assert process.stderr.read() == ""


@needs_signals
@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--settings"]])
def test_a_reader_that_went_away_is_no_failure(arguments: list[str]) -> None:
    """A table of rich, which has its own idea of such an end, and plain lines."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_BROKEN_PIPE, "")


def test_json_is_all_there_is_on_stdout(tiny_models: TinyModels) -> None:
    model = str(tiny_models("tiny-qwen2"))
    with start(["run", "-m", model, "--max-tokens", "4", "--json", "hi"]) as process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out)["stats"]["generated_tokens"] == 4


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run", "hi"], EXIT_FAILED, "Error: No model was named and the demo model is not there"),
        (["run", "-m", "nowhere.gguf", "hi"], EXIT_FAILED, "Error: There is no file or folder"),
        (["run", "--top-p", "2", "hi"], 2, "--top-p"),
        (["fly"], 2, "invalid choice: 'fly'"),
    ],
)
def test_exit_status_of_failures(
    arguments: list[str], status: int, message: str, tmp_path: Path
) -> None:
    with start(arguments, {"CROSSINFER_CACHE": str(tmp_path)}) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert out == ""
    assert message in err
    assert "Traceback" not in err


needs_shell = pytest.mark.skipif(os.name == "nt", reason="redirections of a POSIX shell")


@needs_shell
@pytest.mark.parametrize(
    ("command", "redirection"),
    [
        ("run --max-tokens 2 -", "<&-"),
        ("chat --max-tokens 2", "<&-"),
        ("run --max-tokens 2 hi", ">&-"),
        ("run --max-tokens 2 hi", "2>&-"),
        ("run --max-tokens 2 --json hi", "<&- 2>&-"),
    ],
)
def test_a_standard_stream_may_be_closed(
    command: str, redirection: str, tiny_models: TinyModels
) -> None:
    done = _in_shell(f"{command} -m {tiny_models('tiny-llama')}", redirection)
    assert (done.returncode, done.stderr) == (0, "")


@needs_shell
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_one_sentence(tiny_models: TinyModels) -> None:
    done = _in_shell(f"run --max-tokens 2 hi -m {tiny_models('tiny-llama')}", ">/dev/full")
    assert done.returncode == EXIT_FAILED
    assert done.stderr == "Error: [Errno 28] No space left on device\n"


def _in_shell(arguments: str, redirection: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(MAIN)} {arguments} {redirection}"
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    environment = {"CROSSINFER_CACHE": str(tmp_path), "CROSSINFER_DEBUG": "1"}
    with start(["run", "hi"], environment) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == EXIT_FAILED
    assert "Traceback" in err
