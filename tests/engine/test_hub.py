"""Models by their id on the Hub, from a stand-in server; each download in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.formats.small_model import small_gguf
from tests.hub_server import COMMIT, StandIn, serve

from crossinfer.core.errors import FormatError
from crossinfer.engine.hub import find_model
from crossinfer.engine.hub_choice import choose_files

NAME = "somebody/some-model"
BIG = bytes(range(256)) * 8192  # 2 MB
FILES = {
    "README.md": b"# a model",
    "some-model-Q8_0.gguf": BIG,
    "some-model-Q4_K_M-00001-of-00002.gguf": b"first",
    "some-model-Q4_K_M-00002-of-00002.gguf": b"second",
    "mmproj-f16.gguf": b"no model",
}
# What the command line does: an error is one sentence.
_SCRIPT = """
import sys
from crossinfer.core.errors import FormatError
from crossinfer.engine.hub import find_model
def progress(task, done, total):
    print(f"{task}: {done}/{total}", file=sys.stderr)
try:
    print(find_model(sys.argv[1], progress))
except FormatError as error:
    sys.exit(f"Error: {error}")
"""


@pytest.fixture
def hub() -> Iterator[StandIn]:
    with serve(StandIn(NAME, FILES)) as stand_in:
        yield stand_in


def fetch(
    name: str,
    endpoint: str,
    home: Path,
    settings: Mapping[str, str] | None = None,
    program: Sequence[str] = (_SCRIPT,),
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "CROSSINFER_CACHE": str(home / "cache"),
        **(settings or {}),
    }
    return subprocess.run(
        [sys.executable, "-c", *program, name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_quantization_is_downloaded_checked_and_kept(hub: StandIn, tmp_path: Path) -> None:
    done = fetch(f"{NAME}:q8_0", hub.endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.read_bytes() == BIG
    assert f"Downloading some-model-Q8_0.gguf: {len(BIG)}/{len(BIG)}" in done.stderr
    assert f"Checking some-model-Q8_0.gguf: {len(BIG)}/{len(BIG)}" in done.stderr

    hub.requests.clear()
    again = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path)
    assert again.stdout == done.stdout
    assert "GET" not in {method for method, path, _ in hub.requests if "/resolve/" in path}
    assert "Checking" not in again.stderr

    hub.status = 500
    offline = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path, {"HF_HUB_OFFLINE": "1"})
    assert offline.stdout == done.stdout, offline.stderr


def test_all_parts_are_downloaded(hub: StandIn, tmp_path: Path) -> None:
    done = fetch(NAME, hub.endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.read_bytes() == b"first"
    assert path.with_name(path.name.replace("00001-of", "00002-of")).read_bytes() == b"second"


def test_a_folder_is_downloaded_without_what_it_does_not_need(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"weights", "pytorch_model.bin": b"no"}
    with serve(StandIn(NAME, files)) as hub:
        done = fetch(NAME, hub.endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert folder.name == COMMIT


def test_a_cut_transfer_is_resumed(hub: StandIn, tmp_path: Path) -> None:
    large = BIG * 11  # the library keeps what has arrived by pieces of 10 MB
    hub.files["some-model-Q8_0.gguf"] = large
    hub.cut["some-model-Q8_0.gguf"] = 21_000_000
    for _ in range(2):  # the library itself may or may not try again at once
        done = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path)
        if done.returncode == 0:
            break
        assert "what has arrived is kept" in done.stderr
    assert Path(done.stdout.strip()).read_bytes() == large
    assert any(wanted is not None for _, _, wanted in hub.requests), "it began anew"


def test_a_wrong_hash_is_found_and_the_file_not_kept(hub: StandIn, tmp_path: Path) -> None:
    hub.corrupt.add("some-model-Q8_0.gguf")
    done = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path)
    assert done.returncode == 1
    assert "has the hash" in done.stderr
    assert "Traceback" not in done.stderr
    hub.corrupt.clear()
    done = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path)
    path = Path(done.stdout.strip())
    assert path.read_bytes() == BIG
    path.resolve().unlink()
    path.unlink()
    hub.corrupt.add("some-model-Q8_0.gguf")
    done = fetch(f"{NAME}:Q8_0", hub.endpoint, tmp_path)
    assert "has the hash" in done.stderr, "that it was right once was taken for granted"


def test_failures_are_one_sentence(hub: StandIn, tmp_path: Path) -> None:
    for name, status, endpoint, settings, said in (
        ("nobody/nothing", None, hub.endpoint, {}, "no model of that name"),
        (NAME, 403, hub.endpoint, {}, "could not be downloaded"),
        (NAME, None, "http://127.0.0.1:9", {}, "could not be downloaded"),
        (NAME, None, hub.endpoint, {"HF_HUB_OFFLINE": "1"}, "was not downloaded before"),
        (f"{NAME}:Q2_K", None, hub.endpoint, {}, "has no 'Q2_K'; there are some-model-Q4_K_M"),
    ):
        hub.status = status
        done = fetch(name, endpoint, tmp_path, settings)
        assert done.returncode == 1
        assert said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_a_path_that_exists_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "some-model").touch()
    assert find_model(NAME) == Path(NAME)
    assert find_model("folder/missing.gguf") == Path("folder/missing.gguf")
    assert find_model("a/b/c") == Path("a/b/c")


def test_without_the_extra_one_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FormatError, match=r"pip install 'crossinfer\[hub\]'"):
        find_model(NAME)


@pytest.mark.parametrize(
    ("names", "quant", "chosen"),
    [
        (["a-Q8_0.gguf"], None, ["a-Q8_0.gguf"]),
        (["a-Q4_0.gguf", "a-Q4_0_8_8.gguf"], "Q4_0", ["a-Q4_0.gguf"]),
        (["a.Q4_K_M.gguf", "a.IQ4_XS.gguf"], None, ["a.Q4_K_M.gguf"]),
        (["a-Q2_K.gguf", "b-Q3_K.gguf"], None, "several models; name one as"),
        (["x/a-Q8_0.gguf", "y/a-Q8_0.gguf"], "Q8_0", "names several files"),
        (["../a.gguf", "/b.gguf", "c\\..\\d.gguf"], None, "has neither GGUF files nor"),
        (["config.json", "model.safetensors"], "Q4_0", "has no GGUF files"),
        (["config.json", "pytorch_model.bin"], None, "has neither GGUF files nor"),
    ],
)
def test_which_files_are_chosen(
    names: list[str], quant: str | None, chosen: list[str] | str
) -> None:
    if isinstance(chosen, list):
        assert choose_files(NAME, names, quant) == chosen
        return
    with pytest.raises(FormatError, match=chosen):
        choose_files(NAME, names, quant)


def test_the_command_line_takes_a_name(tmp_path: Path) -> None:
    raw = small_gguf(tmp_path).read_bytes()
    with serve(StandIn(NAME, {"model-Q8_0.gguf": raw})) as hub:
        code = "from crossinfer.cli.app import main; main()"
        done = fetch(NAME, hub.endpoint, tmp_path, program=(code, "inspect"))
    assert done.returncode == 0, done.stderr
    assert "11 tensors" in done.stdout
