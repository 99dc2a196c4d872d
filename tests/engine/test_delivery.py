"""What a step gave is told while the next one runs, and nothing is lost or told twice by it."""

from __future__ import annotations

import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceError
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import TokenizerError
from crossinfer.engine.sequence import GenerationSequence
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.text.detokenizer import Detokenizer

PROMPT = list(range(20, 40))


def test_text_is_told_between_a_step_s_submission_and_its_end(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    deliver = GenerationSequence.deliver

    def told(self: GenerationSequence) -> None:
        events.append("told")
        deliver(self)

    monkeypatch.setattr(GenerationSequence, "deliver", told)
    device = ReferenceDevice()
    submit = device.submit

    def submitted(*arguments: object) -> object:
        events.append("submitted")
        fence = submit(*arguments)  # type: ignore[arg-type]
        wait = fence.wait

        def waited(*arguments: object) -> None:
            events.append("waited for")
            wait(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(fence, "wait", waited)
        return fence

    with device, LLM(tiny_models("tiny-llama"), device, context=64) as llm:
        monkeypatch.setattr(device, "submit", submitted)
        assert len(llm.generate(PROMPT, max_tokens=4, stop=[]).tokens) == 4
    step = ["submitted", "told", "waited for"]
    assert events[:2] == ["submitted", "waited for"]
    # The bucket of one row is yet to be recorded, for which nobody has to wait.
    assert events[2:5] == ["told", "submitted", "waited for"]
    assert events[5:11] == step + step


def test_a_stop_string_ends_the_tokens_where_it_ends_the_text(tiny_models: TinyModels) -> None:
    """The step that runs meanwhile computes a row too many, which nobody must see."""
    with LLM(tiny_models("tiny-llama"), "reference", context=64) as llm:
        whole = llm.generate(PROMPT, max_tokens=12)
        texts = [llm.tokenizer.decode(whole.tokens[:n], continued=True) for n in range(13)]
        n = next(n for n in range(4, 12) if texts[n - 1] and texts[n] > texts[n - 1])
        stop = texts[n][-1]
        earliest = next(n for n in range(13) if stop in texts[n])
        cut = llm.generate(PROMPT, max_tokens=12, stop=[stop])
        assert cut.text == texts[earliest][: texts[earliest].find(stop)]
        assert cut.finish_reason == "stop"
        assert cut.tokens == whole.tokens[:earliest]
        assert llm.generate(PROMPT, max_tokens=12).tokens == whole.tokens


def test_a_token_without_text_fails_its_own_request(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def push(_: Detokenizer, token: int) -> str:
        raise TokenizerError(f"Token {token} has no text.")

    with LLM(tiny_models("tiny-llama"), "reference", context=64) as llm:
        with monkeypatch.context() as patch:
            patch.setattr(Detokenizer, "push", push)
            with pytest.raises(TokenizerError, match="has no text"):
                llm.generate(PROMPT, max_tokens=4)
        assert len(llm.generate(PROMPT, max_tokens=4).tokens) == 4


def test_what_came_before_a_failure_is_told_before_it(tiny_models: TinyModels) -> None:
    # One layer's attention a layer and step: the fault is in the third step.
    device = FaultyDevice(ReferenceDevice(), [Fault(FaultKind.OUT_OF_MEMORY, "argmax", 3)])
    with device, LLM(tiny_models("tiny-llama"), device, context=64) as llm:
        told: list[str] = []
        with pytest.raises(DeviceError, match="argmax"):
            told.extend(llm.stream(PROMPT, max_tokens=8))
        whole = llm.generate(PROMPT, max_tokens=2)
        assert "".join(told) == llm.tokenizer.decode(whole.tokens, continued=True).rstrip("\ufffd")
