"""`crossinfer run` and the options of generation, within this process."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.cli.invoke import invoke
from tests.tiny_models import TinyModels

from crossinfer.cli.app import COMMANDS
from crossinfer.cli.option_values import parse_bias, parse_devices, unescape
from crossinfer.engine.llm import DEFAULT_MAX_TOKENS, LLM
from crossinfer.engine.sampling import SamplingParams
from crossinfer.engine.setup import DEFAULT_CONTEXT

RAW = ["--raw", "--max-tokens", "6"]


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> str:
    return str(tiny_models("tiny-qwen2"))


def run_json(*arguments: str) -> dict[str, Any]:
    """The object that `run --json` prints."""
    result = invoke(["run", "--json", *arguments])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_streamed_text_is_that_of_the_api(model: str) -> None:
    with LLM(model) as llm:
        expected = llm.generate("once", max_tokens=6)
    result = invoke(["run", "-m", model, *RAW, "once"])
    assert result.exit_code == 0
    assert result.stdout == expected.text.removesuffix("\n") + "\n"
    assert run_json("-m", model, *RAW, "once")["tokens"] == list(expected.tokens)


def test_chat_template_and_system_message(model: str) -> None:
    with LLM(model) as llm:
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
        ]
        expected = llm.chat(messages, max_tokens=3)
    found = run_json("-m", model, "--max-tokens", "3", "--system", "Be brief.", "hello")
    assert found["tokens"] == list(expected.tokens)
    assert found["stats"]["prompt_tokens"] == expected.stats.prompt_tokens


def test_dash_reads_standard_input_less_one_newline(model: str) -> None:
    arguments = ["run", "-m", model, *RAW, "--json"]
    piped = invoke([*arguments, "-"], typed="once\n")
    assert json.loads(piped.stdout)["tokens"] == run_json("-m", model, *RAW, "once")["tokens"]


def test_input_that_is_not_utf8_is_refused(model: str) -> None:
    result = invoke(["run", "-m", model, "-"], typed=b"ab\xff")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Standard input is not UTF-8 text (byte 2)")


def test_every_sampling_option_reaches_the_engine(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    original = LLM.stream

    def stream(self: LLM, prompt: Any, **keywords: Any) -> Any:
        given.update(keywords)
        return original(self, prompt, **keywords)

    monkeypatch.setattr(LLM, "stream", stream)
    run_json(
        *("-m", model, "--raw", "--max-tokens", "2", "--stop", "a\\nb", "--stop=-c"),
        *("--temperature", "0.5", "--top-k", "7", "--top-p", "0.9", "--min-p", "0.1"),
        *("--repeat-penalty", "1.1", "--presence-penalty", "0.2", "--frequency-penalty", "-0.3"),
        *("--logit-bias", "5=-inf", "--logit-bias", "6=1.5", "--seed", "3", "once"),
    )
    del given["progress"]
    assert given == {
        "max_tokens": 2,
        "stop": ["a\nb", "-c"],
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": -0.3,
        "logit_bias": {5: float("-inf"), 6: 1.5},
        "seed": 3,
    }


def test_help_tells_the_defaults_of_the_engine() -> None:
    _, _, told = " ".join(invoke(["run", "--help"]).stdout.split()).partition(" options: ")
    params = SamplingParams()
    for option, value in (
        ("--temperature X", params.temperature),
        ("--top-k N", params.top_k),
        ("--top-p X", params.top_p),
        ("--min-p X", params.min_p),
        ("--repeat-penalty X", params.repeat_penalty),
        ("--presence-penalty X", params.presence_penalty),
        ("--frequency-penalty X", params.frequency_penalty),
        ("--max-tokens N", DEFAULT_MAX_TOKENS),
        ("--context N", f"what the model was made for, at most {DEFAULT_CONTEXT}"),
    ):
        found = re.search(rf"{option} [^()]*\(default: ([^()]*)\)", told)
        assert found is not None, option
        assert found[1] == str(value)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_listed_by_the_first_sentence_of_its_help(command: str) -> None:
    assert " ".join(COMMANDS[command].split()) in " ".join(invoke(["--help"]).stdout.split())
    result = invoke([command, "--help"])
    assert result.exit_code == 0
    assert result.stdout.split("\n\n")[1].replace("\n", " ") == COMMANDS[command]


def test_options_are_not_guessed_from_their_beginnings(model: str) -> None:
    assert invoke(["run", "-m", model, "--max", "2", "hi"]).exit_code == 2


def test_two_dashes_may_be_a_value(model: str) -> None:
    given = ("-m", model, *RAW, "once")
    assert run_json("--stop=--", *given)["tokens"] == run_json(*given)["tokens"]
    result = invoke(["run", "--seed=--", *given])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'--' is not a whole number" in result.stderr


def test_context_and_device_reach_the_engine(model: str) -> None:
    result = invoke(["run", "-m", model, "--context", "4", "--raw", "a b c d e f"])
    assert result.exit_code == 1
    assert "the context is 4" in result.stderr
    result = invoke(["run", "-m", model, "--device", "warp", "hi"])
    assert result.exit_code == 1
    assert "There is no device 'warp'" in result.stderr
    found = run_json("-m", model, *RAW, "--device", "reference,null", "--threads", "1", "once")
    assert len(found["tokens"]) == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["--logit-bias", "5"],
        ["--logit-bias", "x=1"],
        ["--device", "reference,,null"],
        ["--raw", "--system", "Be brief."],
        ["--temperature", "-1"],
        ["--max-tokens", "many"],
    ],
)
def test_bad_options_exit_with_2(model: str, arguments: list[str]) -> None:
    result = invoke(["run", "-m", model, *arguments, "hi"])
    assert result.exit_code == 2
    assert result.stdout == ""


def test_option_values() -> None:
    assert unescape(r"a\nb\tc\\n\x\r") == "a\nb\tc\\n\\x\r"
    assert [parse_bias("1=2"), parse_bias("3=-inf")] == [(1, 2.0), (3, float("-inf"))]
    assert parse_devices("a, b") == ["a", "b"]
