"""`crossinfer chat` with piped lines."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.invoke import Result, invoke
from tests.tiny_models import TinyModels

from crossinfer.engine.llm import LLM

Conversations = list[list[tuple[str, str]]]


@pytest.fixture(scope="module")
def model(tiny_models: TinyModels) -> str:
    return str(tiny_models("tiny-qwen2"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Conversations:
    """The conversations that the engine is given, in order."""
    conversations: Conversations = []
    original = LLM.stream_chat

    def stream_chat(self: LLM, messages: Any, **keywords: Any) -> Any:
        conversations.append([(message["role"], message["content"]) for message in messages])
        return original(self, messages, **keywords)

    monkeypatch.setattr(LLM, "stream_chat", stream_chat)
    return conversations


def chat(model: str, lines: str, *arguments: str) -> Result:
    result = invoke(["chat", "-m", model, *arguments], typed=lines)
    assert result.exit_code == 0, result.output
    return result


def test_history_is_kept_until_reset(model: str, asked: Conversations) -> None:
    result = chat(model, "one\n\ntwo\n/reset\nthree\n", "--max-tokens", "3", "--system", "S")
    first, second, third = asked
    assert first == [("system", "S"), ("user", "one")]
    assert second[:2] == first
    role, answer = second[2]
    assert role == "assistant"
    assert result.stdout.startswith(answer)
    assert second[3] == ("user", "two")
    assert third == [("system", "S"), ("user", "three")]
    assert "The answer was cut after 3 tokens" in result.stderr


def test_commands(model: str, asked: Conversations) -> None:
    result = chat(model, "/help\n/fly\n/exit\nnever\n")
    assert asked == []
    assert "/reset" in result.stderr
    assert "There is no command /fly" in result.stderr
    assert result.stdout == ""


def test_a_turn_that_does_not_fit_is_dropped(model: str, asked: Conversations) -> None:
    result = chat(model, f"{'long ' * 60}\nhi\n", "--context", "64", "--max-tokens", "2")
    assert "the context is 64" in result.stderr
    assert "/reset begins a new conversation" in result.stderr
    assert asked[1] == [("user", "hi")]


def test_a_full_context_is_told(model: str) -> None:
    result = chat(model, "hi\n", "--context", "32", "--max-tokens", "100")
    assert "The context of 32 tokens is full" in result.stderr
