"""Devices that fail: the callers learn of it, nobody waits for ever."""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable

import pytest
from tests.tiny_models import TinyModels

from crossinfer import LLM, DeviceError, DeviceLost, OutOfDeviceMemory
from crossinfer.backends.reference import ReferenceDevice
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice

PROMPT = list(range(20, 40))
Opener = Callable[..., LLM]


@pytest.fixture
def open_with(tiny_models: TinyModels) -> Opener:
    def opener(kind: FaultKind, kernel: str, at: int = 1) -> LLM:
        inner = ReferenceDevice(deadline_s=0.3 if kind is FaultKind.HANG else 600)
        device = FaultyDevice(inner, [Fault(kind, kernel, at)])
        return LLM(tiny_models("tiny-llama"), device, context=64)

    return opener


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.HANG])
def test_a_lost_device_fails_everything_now_and_later(open_with: Opener, kind: FaultKind) -> None:
    with open_with(kind, "attention", 5) as llm:
        errors: list[DeviceLost] = []
        no_end = dict.fromkeys(llm.tokenizer.end_ids, -math.inf)

        def ask() -> None:
            with pytest.raises(DeviceLost) as caught:
                llm.generate(PROMPT, max_tokens=None, logit_bias=no_end)
            errors.append(caught.value)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert len(errors) == 3
        assert any("attention[f32]" in error.in_flight for error in errors)
        frames = []
        for _ in range(3):
            with pytest.raises(DeviceLost) as caught:
                llm.generate(PROMPT)
            frames.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
        assert frames[0] == frames[2]  # the error keeps nothing of those who asked before


def test_out_of_memory_fails_the_step_and_no_more(open_with: Opener) -> None:
    with open_with(FaultKind.OUT_OF_MEMORY, "linear", 3) as llm:
        with pytest.raises(OutOfDeviceMemory, match="linear"):
            llm.generate(PROMPT, max_tokens=3)
        assert len(llm.generate(PROMPT, max_tokens=3).tokens) == 3


def test_a_step_that_fails_on_two_devices_leaves_nothing_in_flight(
    tiny_models: TinyModels,
) -> None:
    first = FaultyDevice(
        ReferenceDevice(name="first", lacks=["attention"]),
        [Fault(FaultKind.OUT_OF_MEMORY, "linear", 2)],
    )
    with (
        first,
        ReferenceDevice() as second,
        LLM(tiny_models("tiny-llama"), [first, second], context=64) as llm,
    ):
        with pytest.raises(OutOfDeviceMemory, match="linear"):
            llm.generate(PROMPT, max_tokens=3)
        assert not first._in_flight.pending()
        assert not second._in_flight.pending()
        assert len(llm.generate(PROMPT, max_tokens=3).tokens) == 3


def test_a_stream_raises_the_loss_each_time(open_with: Opener) -> None:
    with open_with(FaultKind.LOST, "argmax", 4) as llm:
        stream = llm.stream(PROMPT, max_tokens=10)
        for read in (lambda: list(stream), lambda: next(stream), stream.result):
            with pytest.raises(DeviceLost, match="a fault was injected"):
                read()


def test_wrong_results_reach_the_logits(open_with: Opener, tiny_models: TinyModels) -> None:
    with LLM(tiny_models("tiny-llama"), "reference", context=64) as good:
        expected = good.logits(PROMPT)
    with open_with(FaultKind.WRONG_RESULT, "attention", 1) as llm:
        assert abs(llm.logits(PROMPT) - expected).max() > 0.01
        assert abs(llm.logits(PROMPT) - expected).max() < 1e-5


def test_logits_that_are_not_finite_are_an_error(tiny_models: TinyModels) -> None:
    path = tiny_models("tiny-llama")
    with LLM(path, "reference", context=64) as llm:
        norm = llm._runner.current._residents.buffers["model.norm.weight", 0]
        norm.device.write(norm.view(), b"\xff" * 16)
        for options in ({}, {"temperature": 1.0}):
            with pytest.raises(DeviceError, match="logits are not finite"):
                llm.generate(PROMPT, **options)  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match="logits are not finite"):
            llm.perplexity("some text")
