"""C programs get the tokens that Python gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.embedding.conftest import Program
from tests.tiny_models import TinyModels

from crossinfer import LLM, Generation
from crossinfer.embedding.status import FINISH_REASONS

MakeProgram = Callable[[str], Program]
OPTIONS = '{"device": "cpu", "context": 96}'
MESSAGES = [{"role": "user", "content": "Größe 漢字 🙂?"}]


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> Path:
    return tiny_models("tiny-qwen2", "q4_0")


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    with LLM(model, "cpu", context=96) as llm:
        yield llm


def assert_same(printed: bytes, expected: Generation) -> None:
    figures, ids, text = printed.split(b"\n", 2)
    stats = expected.stats
    reason = FINISH_REASONS[expected.finish_reason]
    assert figures.decode() == f"{reason} {stats.prompt_tokens} {stats.generated_tokens}"
    assert [int(token) for token in ids.split()] == list(expected.tokens)
    assert text == expected.text.encode()


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 24},
        {"max_tokens": 30, "temperature": 1.5, "seed": 7, "top_k": 40, "top_p": 0.9},
        {"max_tokens": None, "repeat_penalty": 1.3, "min_p": 0.01},
    ],
    ids=str,
)
def test_a_prompt(program: MakeProgram, model: Path, llm: LLM, options: dict[str, Any]) -> None:
    text = "Once upon a time — «é»"
    printed = program("generate").check(model, OPTIONS, "prompt", text, json.dumps(options))
    assert_same(printed, llm.generate(text, **options))


def test_a_conversation(program: MakeProgram, model: Path, llm: LLM) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "stop": ["zzz"], "logit_bias": {"5": -3.5}}
    printed = program("generate").check(
        model, OPTIONS, "chat", json.dumps(MESSAGES), json.dumps(options)
    )
    options["logit_bias"] = {5: -3.5}
    assert_same(printed, llm.chat(MESSAGES, **options))


def test_the_example_prints_the_answer(program: MakeProgram, model: Path, llm: LLM) -> None:
    done = program("host_cpu/host_cpu").run(model, "The sea")
    assert done.returncode == 0
    assert done.stdout == llm.generate("The sea", max_tokens=40).text.encode() + b"\n"
    assert done.stderr.endswith(b" tokens/s\n")


@pytest.mark.parametrize(("dispatches", "ms"), [("3", "0"), ("0", "0.2"), ("0", "0")])
def test_slices(program: MakeProgram, model: Path, llm: LLM, dispatches: str, ms: str) -> None:
    printed = program("slices").check(model, dispatches, ms)
    assert printed == llm.generate("Once upon a time", max_tokens=8).text.encode()
