"""`crossinfer bench` and `perplexity`, and the traces of kernels."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from tests.cli.invoke import invoke
from tests.tiny_models import TinyModels

from crossinfer.cli.bench import HELP
from crossinfer.cli.measurement import Benchmark
from crossinfer.cli.memory import resident_bytes
from crossinfer.cli.trace import chrome_trace, totals
from crossinfer.core.progress import no_progress
from crossinfer.engine.llm import LLM
from crossinfer.hal.limits import ReadProbe
from crossinfer.hal.timer import TimedKernel

BENCH = ["bench", "--prompt-tokens", "20", "--generate", "4", "--repeat", "2"]
TIMELINE = [
    TimedKernel("linear", "q_proj", "one", 0.5, 0.25),
    TimedKernel("norm", "norm", "two", 0.75, 0.5),
    TimedKernel("linear", "k_proj", "one", 1.0, 0.25),
    TimedKernel("linear", "v_proj", "one", 1.5, 0.5),
]


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> str:
    return str(tiny_models("tiny-llama"))


def test_bench_json(model: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    arguments = [*BENCH, "-m", model, "--json", "--kernels", "--trace", str(trace)]
    result = invoke(arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "first_token_s", "load_s"):
        assert found[key] > 0
    assert found["resident_mb"] > 1
    lowest, highest = found["decode_range"]
    assert lowest <= found["decode_tokens_per_s"] <= highest
    for key in ("prefill_gops", "peak_gops", "decode_gb_s", "read_gb_s", "read_share"):
        assert found[key] > 0
    assert found["decode_end_tokens_per_s"] is found["decode_end_gb_s"] is None
    assert found.keys() <= set(re.findall(r"\w+", HELP))
    assert (found["model"], found["device"]) == (model, "cpu")
    assert math.isclose(sum(total["share"] for total in found["kernels"]), 1)
    events = json.loads(trace.read_text())["traceEvents"]
    runs = [event for event in events if event["ph"] == "X"]
    assert len(runs) == sum(total["runs"] for total in found["kernels"])
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in runs)


def test_bench_of_one_token_has_no_speed_of_decode(model: str) -> None:
    one = ["--prompt-tokens", "8", "--generate", "1", "--repeat", "1"]
    result = invoke(["bench", *one, "-m", model, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["decode_tokens_per_s"] == 0


def test_bench_table(model: str) -> None:
    result = invoke([*BENCH, "-m", model, "--kernels"])
    assert result.exit_code == 0, result.output
    for part in ("prefill", "decode", "first token", "memory", "total ms", "rms_norm"):
        assert part in result.stdout


def test_bench_at_the_end_of_the_context(model: str) -> None:
    arguments = [*BENCH, "-m", model, "--context", "64", "--context-end", "--device", "reference"]
    result = invoke([*arguments, "--json"])
    found = json.loads(result.stdout)
    assert found["decode_end_tokens_per_s"] > 0
    assert found["decode_end_gb_s"] > 0
    assert found["peak_gops"] is found["read_gb_s"] is None  # a reference has no limits
    assert found["read_share"] is None
    assert found["decode_end_expected_tokens_per_s"] is None
    shown = invoke(arguments).stdout
    assert "up to position 64" in shown


def test_bench_of_a_context_whose_end_is_its_start(model: str) -> None:
    arguments = [*BENCH, "-m", model, "--context", "40", "--context-end", "--device", "cpu"]
    found = json.loads(invoke([*arguments, "--json"]).stdout)
    assert found["decode_end_tokens_per_s"] > 0
    assert found["decode_end_expected_tokens_per_s"] is found["decode_end_share"] is None


class SlowProbe(ReadProbe):
    """Memory that is read at 100 bytes a second at first, then at 300, then at 100, …"""

    def __init__(self) -> None:
        self._readings = 0
        self.is_closed = False

    def bytes_per_s(self) -> float:
        self._readings += 1
        return 100.0 if self._readings % 4 in (1, 2) else 300.0

    def close(self) -> None:
        self.is_closed = True


def test_the_share_of_reading_is_that_of_the_same_moment(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = SlowProbe()
    with LLM(model, "cpu", context=64) as llm:
        device = llm.plan.devices[0]
        monkeypatch.setattr(device, "read_probe", lambda: probe)
        benchmark = Benchmark(llm, 20, 4, no_progress)
        share = benchmark.read_share()
        assert share is not None
        assert share.read_gb_s == 200 / 1e9  # between what was read before and after
        assert share.read_share > 0
        assert probe.is_closed
        work = llm.count_work().decode_bytes(24.5)
        assert share.read_share > work / 200  # a tiny model decodes more than one token a second


def test_the_end_of_the_context_is_told_from_its_start_by_the_bytes(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = SlowProbe()
    with LLM(model, "cpu", context=128) as llm:
        monkeypatch.setattr(llm.plan.devices[0], "read_probe", lambda: probe)
        end = Benchmark(llm, 20, 4, no_progress).at_end(1)
        assert probe.is_closed
        work = llm.count_work()
        further = work.decode_bytes(128 - 17 + 8.5) - work.decode_bytes(16 + 8.5)
        assert further == 95 * work.position_bytes
        assert end.expected_tokens_per_s is not None
        # At 200 bytes a second, nothing else is left of the start's time.
        assert math.isclose(1 / end.expected_tokens_per_s, further / 200, rel_tol=0.1)
        assert end.share is not None
        assert math.isclose(end.share, end.tokens_per_s / end.expected_tokens_per_s)


def test_bench_shows_what_is_left_at_the_end(model: str) -> None:
    arguments = [*BENCH, "-m", model, "--context", "128", "--context-end", "--device", "cpu"]
    found = json.loads(invoke([*arguments, "--json"]).stdout)
    for key in ("tokens_per_s", "expected_tokens_per_s", "share", "gb_s"):
        assert found[f"decode_end_{key}"] > 0
    assert "that the bytes of the KV cache leave" in invoke(arguments).stdout


def test_a_context_too_short_for_short_answers_has_no_share(model: str) -> None:
    result = invoke([*BENCH, "-m", model, "--context", "32", "--device", "cpu", "--json"])
    found = json.loads(result.stdout)
    assert found["decode_gb_s"] > 0
    assert found["read_gb_s"] is found["read_share"] is None
    assert "read rate" not in invoke([*BENCH, "-m", model, "--context", "32"]).stdout


def test_bench_refuses_what_does_not_fit(model: str) -> None:
    result = invoke([*BENCH, "-m", model, "--context", "16"])
    assert result.exit_code == 1
    assert "do not fit the context of 16" in result.stderr


def test_trace_that_cannot_be_written(model: str, tmp_path: Path) -> None:
    arguments = [*BENCH, "-m", model, "--trace", str(tmp_path / "no" / "trace.json")]
    result = invoke(arguments)
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_answers_that_end_early_are_made_longer(model: str) -> None:
    with LLM(model) as llm:
        benchmark = Benchmark(llm, 20, 4, no_progress)
        prompt = benchmark._prompt(0, 20)
        first = llm.generate(prompt, max_tokens=1).tokens[0]
        llm.tokenizer.end_ids = frozenset({first})
        assert llm.generate(prompt, max_tokens=4).stats.generated_tokens == 0
        assert benchmark.speed(1).end_tokens_barred
        assert benchmark.speed(1).decode_tokens_per_s > 0


def test_totals_by_kernel() -> None:
    linear, norm = totals(TIMELINE)
    assert (linear.name, linear.runs, linear.total_ms) == ("linear", 3, 1000)
    assert (norm.name, norm.runs, norm.total_ms) == ("norm", 1, 500)
    assert math.isclose(linear.share, 2 / 3)
    assert totals([]) == []


def test_chrome_trace_has_a_track_for_each_device() -> None:
    events = chrome_trace(TIMELINE)["traceEvents"]
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    assert tracks == {"one": 0, "two": 1}
    runs = [event for event in events if event["ph"] == "X"]
    assert [run["tid"] for run in runs] == [0, 1, 0, 0]
    assert (runs[0]["ts"], runs[0]["dur"]) == (500_000, 250_000)
    assert runs[0]["args"] == {"node": "q_proj"}


def test_resident_memory_is_plausible() -> None:
    resident = resident_bytes()
    assert resident is None or 1e6 < resident < 1e12


def test_perplexity(model: str, tmp_path: Path) -> None:
    text = "A text\r\nthat is measured. " * 4
    file = tmp_path / "text.txt"
    file.write_bytes(text.encode())
    with LLM(model) as llm:
        expected, tokens = llm.perplexity(text), len(llm.tokenize(text))
    result = invoke(["perplexity", "-m", model, str(file), "--json"])
    found = json.loads(result.stdout)
    assert math.isclose(found["perplexity"], expected, rel_tol=1e-6)
    assert found["tokens"] == tokens
    shown = invoke(["perplexity", "-m", model, "-"], typed=text)
    assert shown.stdout.startswith(f"Perplexity {expected:.4f} over {tokens} tokens")
    missing = invoke(["perplexity", "-m", model, str(tmp_path / "none.txt")])
    assert missing.exit_code == 1
    assert "none.txt cannot be read" in missing.stderr
