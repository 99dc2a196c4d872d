"""`crossinfer inspect`, `devices` and `demo-model`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoke import invoke
from tests.formats.small_model import small_gguf, small_split, source
from tests.tiny_models import TinyModels

from crossinfer.cli.output import abbreviated, printable
from crossinfer.core.progress import Progress
from crossinfer.engine.llm import LLM
from crossinfer.formats.gguf import GGUFFile
from crossinfer.hal.device import Device
from crossinfer.plan.explain import step_rows


def output_of(*arguments: str) -> str:
    """What a command that succeeds prints."""
    result = invoke(list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_shows_metadata_tensors_and_totals(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama", "q4_0")
    shown = output_of("inspect", str(path))
    for part in ("GGUF version 3", "general.architecture", "blk.0.attn_q.weight", "96 x 96"):
        assert part in shown
    vocabulary = next(row for row in shown.splitlines() if row.startswith("tokenizer.ggml.tokens"))
    assert "(347 elements)" in vocabulary


def test_inspect_json_counts_what_the_file_holds(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama", "q4_0")
    file, found = GGUFFile.open(path), json.loads(output_of("inspect", str(path), "--json"))
    assert found["architecture"] == "llama"
    assert found["problem"] is None
    assert found["tensor_bytes"] == sum(t.size_in_bytes for t in file.tensors.values())
    assert [tensor["name"] for tensor in found["tensors"]] == list(file.tensors)
    assert found["parameters"] == sum(total["parameters"] for total in found["storage"])
    assert found["metadata"]["tokenizer.ggml.tokens"]["length"] == 347
    assert "plan" not in found


def test_inspect_reads_folders(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-qwen3", "bf16", "safetensors")
    found = json.loads(output_of("inspect", str(path), "--json"))
    assert found["format"] == "safetensors"
    assert found["architecture"] == found["metadata"]["model_type"] == "qwen3"
    assert "bf16" in {total["storage"] for total in found["storage"]}
    assert "model.norm.weight" in output_of("inspect", str(path))


def test_inspect_shows_models_that_cannot_run(tiny_models: TinyModels, tmp_path: Path) -> None:
    raw = tiny_models("tiny-llama").read_bytes()
    path = tmp_path / "other.gguf"
    path.write_bytes(raw.replace(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", _as_string("lxama"), 1))
    shown = output_of("inspect", str(path))
    assert "cannot run" in shown
    assert "lxama" in shown
    result = invoke(["inspect", str(path), "--plan"])
    assert result.exit_code == 1


def test_inspect_tells_of_a_tokenizer_that_cannot_be_used(
    tiny_models: TinyModels, tmp_path: Path
) -> None:
    raw = tiny_models("tiny-llama").read_bytes()
    path = tmp_path / "other.gguf"
    path.write_bytes(raw.replace(_as_string("gpt2"), _as_string("rwkv"), 1))
    found = json.loads(output_of("inspect", str(path), "--json"))
    assert "'rwkv'" in found["problem"]
    assert found["config"]["layers"] == 2


def test_devices_marks_all_that_auto_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_DEVICE", "null, reference")
    found = json.loads(output_of("devices", "--json"))
    assert {info["name"] for info in found if info["auto"]} == {"null", "reference"}


def _as_string(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def test_plan_is_that_of_the_engine_without_loading(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_models("tiny-qwen2", "q8_0")
    with LLM(path) as llm:
        expected = llm.explain()
        steps = [dataclasses.asdict(row) for row in step_rows(llm.plan)]

    def upload(*_arguments: object, **_keywords: object) -> None:
        pytest.fail("weights were uploaded")

    monkeypatch.setattr(Device, "upload", upload)
    found = json.loads(output_of("inspect", str(path), "--plan", "--json"))
    assert found["plan"]["steps"] == json.loads(json.dumps(steps))
    assert [row["device"] for row in found["plan"]["devices"]] == ["cpu"]
    assert expected in output_of("inspect", str(path), "--plan")
    assert " null " in output_of("inspect", str(path), "--plan", "--device", "null")
    result = invoke(["inspect", str(path), "--plan", "--context", "100000"])
    assert result.exit_code == 1
    assert "100000 tokens" in result.stderr


def test_plan_shows_how_layers_are_divided(tiny_models: TinyModels) -> None:
    path = str(tiny_models("tiny-llama"))
    options = ("inspect", path, "--plan", "--device", "reference,cpu", "--gpu-layers")
    shown = output_of(*options, "1")
    assert "Of 2 layers 1 on reference and 1 on cpu; embedding on reference" in shown
    row = next(line for line in shown.splitlines() if line.startswith("model.layers.1.rope_kv"))
    assert row.split()[1] == "cpu"
    assert row.endswith("reference: it was given 1 of 2 layers")
    found = json.loads(output_of(*options, "1", "--json"))["plan"]
    assert found["layers"] == ["reference", "cpu"]
    assert found["placement"] in shown
    streamed = json.loads(output_of(*options, "0", "--json", "--stream-layers"))["plan"]
    assert streamed["streamed"] == [0, 1]
    assert streamed["layers"] == ["reference", "reference"]
    assert json.loads(output_of(*options, "auto", "--json"))["plan"]["placement"] is None


@pytest.mark.parametrize(
    ("value", "device", "message"),
    [
        ("3", "reference,cpu", "the model has 2; give 0 to 2, or auto"),
        ("1", "reference", "name one, as in reference,cpu"),
        ("few", "reference", "'few' is not a number of layers"),
        ("-1", "reference", "'-1' is not a number of layers"),
    ],
)
def test_layers_that_cannot_be_placed(
    tiny_models: TinyModels, value: str, device: str, message: str
) -> None:
    options = ["inspect", str(tiny_models("tiny-llama")), "--plan", "--gpu-layers", value]
    result = invoke([*options, "--device", device])
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {row["name"]: row for row in json.loads(output_of("devices", "--json"))}
    assert found["null"]["kind"] == "simulated"
    assert sum(row["auto"] for row in found.values()) == 1
    assert "reference" in output_of("devices")
    monkeypatch.setenv("CROSSINFER_DEVICE", "null")
    found = {row["name"]: row for row in json.loads(output_of("devices", "--json"))}
    assert found["null"]["auto"]


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSINFER_THREADS", "3")
    found = {row["name"]: row for row in json.loads(output_of("devices", "--settings", "--json"))}
    assert found["CROSSINFER_THREADS"]["value"] == "3"
    assert "not set" in output_of("devices", "--settings")
    monkeypatch.setenv("CROSSINFER_THREADS", "few")
    result = invoke(["devices", "--settings"])
    assert result.exit_code == 1
    assert "CROSSINFER_THREADS" in result.stdout
    assert "an integer" in result.stderr


def test_demo_model_prints_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(progress: Progress) -> Path:
        progress("Unpacking the demo model", 1, 1)
        return Path("demo.gguf")

    monkeypatch.setattr("crossinfer.engine.demo_model_fetch.fetch_demo_model", fetch)
    assert output_of("demo-model") == "demo.gguf\n"


def test_text_of_strangers_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert abbreviated("x" * 30, 10) == "x" * 10 + "… (30 characters)"


def test_inspect_says_which_part_a_file_is(tmp_path: Path) -> None:
    parts = small_split(tmp_path)
    shown = output_of("inspect", str(parts[0]))
    assert "part 1 of 3 (all opened)" in shown
    assert "in 11 tensors" in shown
    shown = output_of("inspect", str(parts[1]))
    assert "part 2 of 3 (the others are not opened)" in shown
    assert "name the first part, model-00001-of-00003.gguf" in shown


def test_inspect_notes_what_is_left_out(tmp_path: Path) -> None:
    head = source("cls.weight", np.zeros((2, 64), np.float32))
    path = small_gguf(tmp_path, changed={"cls.weight": head})
    assert "does not use them: 1 tensor, cls.weight" in output_of("inspect", str(path))
    assert json.loads(output_of("inspect", str(path), "--json"))["notes"]
