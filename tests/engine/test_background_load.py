"""Weights that are loaded beside everything else: what is begun ends well, or leaves nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_loading import damaged
from tests.steps import CONTEXT, LIMITS, step_runner
from tests.tiny_models import TinyModels

from crossinfer import (
    LLM,
    DeviceLost,
    DeviceWarning,
    FormatError,
    InvalidUse,
    OutOfDeviceMemory,
    PlanError,
    RequestError,
)
from crossinfer.backends.cpu import weight_loader
from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.reference.device import ReferenceDevice
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.progress import no_progress
from crossinfer.engine import step
from crossinfer.engine.background_load import BackgroundLoad, stored_bytes
from crossinfer.engine.step import StepRunner
from crossinfer.graph.graph import Tensor
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.models.model import Model, load_model
from crossinfer.plan.plan import make_plan

WAIT_S = 20


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice(threads=2) as device:
        yield device


@pytest.fixture
def model(tiny_models: TinyModels) -> Model:
    return load_model(tiny_models("tiny-qwen2", "q8_0"))


class Brake:
    """Holds every loader before it hands its second batch over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self.batches = 0
        submit = weight_loader.WeightLoader._submit

        def held(loader: weight_loader.WeightLoader) -> None:
            if loader._waiting:
                self.batches += 1
                if self.batches == 2:
                    self.reached.set()
                    assert self.released.wait(WAIT_S)
            submit(loader)

        monkeypatch.setattr(weight_loader, "_PIECE_BYTES", 2_000)
        monkeypatch.setattr(weight_loader, "_LEAST_BATCH", 2_000)
        monkeypatch.setattr(weight_loader, "_MOST_BATCH", 4_000)
        monkeypatch.setattr(weight_loader.WeightLoader, "_submit", held)


def new_runner(model: Model, device: CpuDevice) -> StepRunner:
    return StepRunner(
        model,
        [device],
        VerdictStore(None),
        context=CONTEXT,
        kv_blocks=40,
        kv_dtype=DType.F32,
        limits=LIMITS,
    )


def constants_of(model: Model, runner: StepRunner) -> list[Any]:
    return list(model.graph(runner._shape(1, 1, 1)).constants.values())


def test_all_weights_arrive_before_there_is_a_plan(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    work = BackgroundLoad._work
    done = threading.Event()

    def noted(load: BackgroundLoad) -> None:
        work(load)
        done.set()

    def after_them(*arguments: Any, **keywords: Any) -> Any:
        ended.append(done.wait(WAIT_S))
        return make_plan(*arguments, **keywords)

    monkeypatch.setattr(BackgroundLoad, "_work", noted)
    monkeypatch.setattr(step, "make_plan", after_them)
    runner = new_runner(model, device)
    runner.finish_loading()
    assert ended == [True]
    runner.close()


def test_it_loads_what_a_plan_needs(model: Model, device: CpuDevice) -> None:
    with step_runner(model, [ReferenceDevice(threads=1)]) as other:
        assert other._residents.coming is None  # one that packs on the caller's thread
    runner = new_runner(model, device)
    assert runner._residents.coming is not None
    runner.finish_loading()
    weights = {name for name, _ in runner._residents.buffers} - {*runner.plan.graph.states}
    assert weights == {tensor.name for tensor in runner.plan.constants_on(0)}
    runner.close()
    assert device.memory_in_use == 0


def test_several_devices_have_the_plan_first(model: Model, device: CpuDevice) -> None:
    with step_runner(model, [device, ReferenceDevice(threads=1)]) as runner:
        assert runner._residents.coming is None


def test_a_plan_that_fails_leaves_nothing(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise PlanError("No.")

    brake = Brake(monkeypatch)
    monkeypatch.setattr(step, "make_plan", fails)
    threading.Timer(0.2, brake.released.set).start()
    with pytest.raises(PlanError):
        new_runner(model, device)
    assert device.memory_in_use == 0
    assert device.lost is None


def test_what_is_stopped_ends_within_two_batches(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = new_runner(model, device)
    runner.finish_loading()
    used, brake = device.memory_in_use, Brake(monkeypatch)
    load = BackgroundLoad(model, device, constants_of(model, runner), no_progress)
    assert brake.reached.wait(WAIT_S)
    load.stop()
    brake.released.set()
    with pytest.raises(RequestError, match="closed while its weights were being loaded"):
        load.take()
    assert brake.batches == 2
    assert device.memory_in_use == used
    assert device.lost is None
    runner.close()


def test_who_does_not_wait_for_the_end_loses_the_device(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = new_runner(model, device)
    runner.finish_loading()
    brake = Brake(monkeypatch)
    load = BackgroundLoad(model, device, constants_of(model, runner), no_progress)
    assert brake.reached.wait(WAIT_S)
    wait, interrupts = load._ended.wait, [True]

    def interrupted_once(timeout: float | None = None) -> bool:
        if interrupts and interrupts.pop():
            threading.Timer(0.2, brake.released.set).start()
            raise KeyboardInterrupt
        return wait(timeout)

    monkeypatch.setattr(load._ended, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        load.cancel()
    assert wait(0)  # the thread does nothing any more
    with pytest.raises(DeviceLost, match="loading was cut short"):
        device.loader()


def test_an_answer_is_the_same_without_waiting(tiny_models: TinyModels) -> None:
    path = str(tiny_models("tiny-qwen2", "q4_k"))
    for prompt in ([5], [5, 6, 7]):  # of the bucket that is planned at once, and another
        with LLM(path, "cpu", context=64) as llm:
            expected = llm.generate(prompt, max_tokens=8)
        with LLM(path, "cpu", context=64, wait=False) as llm:
            made = llm.generate(prompt, max_tokens=8)
        assert made.tokens == expected.tokens
        assert made.stats.weight_bytes == expected.stats.weight_bytes > 0
        assert made.stats.kv_bytes == expected.stats.kv_bytes > 0


def test_weights_count_before_they_are_there(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tiny_models("tiny-qwen2", "q8_0"))
    with LLM(path, "cpu", context=64) as llm:
        expected = llm.generate([1], max_tokens=0).stats
    brake = Brake(monkeypatch)
    with LLM(path, "cpu", context=64, wait=False) as llm:
        assert brake.reached.wait(WAIT_S)
        early = llm.generate([1], max_tokens=0).stats
        brake.released.set()
        llm.finish_loading()
        late = llm.generate([1], max_tokens=0).stats
    assert early.weight_bytes == late.weight_bytes == expected.weight_bytes > 0


def test_waiting_tells_of_bad_numbers_and_so_does_the_answer(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    constant = Model.constant

    def noted(model: Model, tensor: Tensor) -> memoryview | Array:
        read.append(tensor.name)
        return constant(model, tensor)

    monkeypatch.setattr(Model, "constant", noted)
    path = damaged(tiny_models("tiny-qwen2", "f16"), "blk.0.attn_q.weight", 0, b"\0\x7c", tmp_path)
    with LLM(str(path), "cpu", context=32, wait=False) as llm:
        with pytest.raises(FormatError, match=r"blk\.0\.attn_q\.weight"):
            llm.finish_loading()
        for prompt in ([1, 2, 3], [1, 2, 3], [1]):
            with pytest.raises(FormatError, match=r"blk\.0\.attn_q\.weight"):
                llm.generate(prompt, max_tokens=1)
        with pytest.raises(FormatError, match=r"blk\.0\.attn_q\.weight"):
            llm.finish_loading()
        assert len(read) == len(set(read)) > 0  # nothing was loaded again, to find the same


def test_what_there_was_no_memory_for_is_loaded_again(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tiny_models("tiny-qwen2", "q8_0"))
    with LLM(path, "cpu", context=64) as llm:
        expected = llm.generate([1, 2, 3], max_tokens=4).tokens
    submit, failures = weight_loader.WeightLoader._submit, [True]

    def fails_once(loader: weight_loader.WeightLoader) -> None:
        if loader._waiting and failures:
            failures.pop()
            raise OutOfDeviceMemory("Others have it.")
        submit(loader)

    monkeypatch.setattr(weight_loader.WeightLoader, "_submit", fails_once)
    with LLM(path, "cpu", context=64, wait=False) as llm:
        with pytest.raises(OutOfDeviceMemory, match="Others have it"):
            llm.generate([1, 2, 3], max_tokens=4)
        assert llm.generate([1, 2, 3], max_tokens=4).tokens == expected


@pytest.mark.parametrize("wait", [True, False])
def test_a_device_that_is_lost_meanwhile_is_opened_again(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    path = str(tiny_models("tiny-qwen2", "q4_k"))
    with LLM(path, "cpu", context=64) as llm:
        expected = llm.generate([5, 6, 7], max_tokens=8).tokens
    submit, losses = weight_loader.WeightLoader._submit, [True]

    def lossy(loader: weight_loader.WeightLoader) -> None:
        if loader._waiting and losses:
            losses.pop()
            loader._device.lose("it was asked to")
        submit(loader)

    monkeypatch.setattr(weight_loader.WeightLoader, "_submit", lossy)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with LLM(path, "cpu", context=64, wait=wait) as llm:
            llm.finish_loading()
            assert llm.generate([5, 6, 7], max_tokens=8).tokens == expected
    assert ["Device cpu was lost: it was asked to." in str(one.message) for one in told] == [True]
    assert not losses


def test_closing_ends_the_wait_for_weights(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    brake, waits, take = Brake(monkeypatch), threading.Event(), BackgroundLoad.take

    def noted(load: BackgroundLoad) -> Any:
        waits.set()
        return take(load)

    monkeypatch.setattr(BackgroundLoad, "take", noted)
    with CpuDevice(threads=2) as device:
        llm = LLM(str(tiny_models("tiny-qwen2", "q8_0")), device, context=64, wait=False)
        stream = llm.stream([1, 2, 3], max_tokens=4)
        assert brake.reached.wait(WAIT_S)
        assert waits.wait(WAIT_S)
        threading.Timer(0.2, brake.released.set).start()
        llm.close()
        with pytest.raises(RequestError, match="closed"):
            stream.result()
        assert brake.batches == 2
        assert device.memory_in_use == 0
        assert device.lost is None


def test_an_interrupt_of_who_waits_is_harmless(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []

    def interrupted(task: str, *_: int) -> None:
        if waits and task == "Loading weights":
            threading.Timer(0.2, brake.released.set).start()
            raise KeyboardInterrupt

    brake = Brake(monkeypatch)
    with CpuDevice(threads=2) as device:
        path = str(tiny_models("tiny-qwen2", "q8_0"))
        llm = LLM(path, device, context=64, wait=False, progress=interrupted)
        assert brake.reached.wait(WAIT_S)
        waits.append(True)
        with pytest.raises(KeyboardInterrupt), llm:
            llm.finish_loading()
        assert brake.batches == 2
        assert device.memory_in_use == 0
        assert device.lost is None
        with pytest.raises(RequestError, match="The model is closed"):
            llm.generate([1], max_tokens=1)


def test_without_a_thread_there_is_no_model(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(OutOfDeviceMemory, match="device cpu cannot be started: can't start"):
        new_runner(model, device)
    assert device.memory_in_use == 0


def test_a_device_that_is_closed_meanwhile_is_not_waited_for(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    brake = Brake(monkeypatch)
    with CpuDevice(threads=2, deadline_s=WAIT_S) as device:
        llm = LLM(str(tiny_models("tiny-qwen2", "q8_0")), device, context=64, wait=False)
        assert brake.reached.wait(WAIT_S)
    brake.released.set()
    started = time.monotonic()
    with pytest.raises(InvalidUse, match="Device cpu is closed"):
        llm.finish_loading()
    llm.close()
    assert time.monotonic() - started < WAIT_S / 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_says_that_it_has_no_weights(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    brake = Brake(monkeypatch)
    with LLM(str(tiny_models("tiny-qwen2", "q8_0")), "cpu", context=64, wait=False) as llm:
        assert brake.reached.wait(WAIT_S)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                llm.finish_loading()
            except RequestError as error:
                llm.close()
                os._exit(0 if "forked" in str(error) else 1)
            finally:
                os._exit(2)
        brake.released.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(llm.generate([1, 2, 3], max_tokens=2).tokens) == 2


def test_progress_never_falls_where_several_wait(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is in the middle of telling when another finds that everything is there."""
    told: list[int] = []
    waiters: list[threading.Thread] = []

    def slow(_: str, done: int, total: int) -> None:
        if told and not waiters:
            assert done < total
            waiters.append(threading.Thread(target=load.wait))
            waiters[0].start()
            brake.released.set()
            waiters[0].join(WAIT_S)
        told.append(done)

    runner = new_runner(model, device)
    runner.finish_loading()
    brake = Brake(monkeypatch)
    constants = constants_of(model, runner)
    load = BackgroundLoad(model, device, constants, slow)
    assert brake.reached.wait(WAIT_S)
    load.wait()
    assert not waiters[0].is_alive()
    assert told == sorted(told)
    assert len(told) >= 3
    assert (told[0], told[-1]) == (0, sum(stored_bytes(tensor) for tensor in constants))
    load.cancel()
    runner.close()


def test_an_error_keeps_nothing_of_those_who_waited(
    model: Model, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = new_runner(model, device)
    runner.finish_loading()

    def fails(*_: Any) -> Any:
        raise FormatError("No.")

    monkeypatch.setattr(Model, "constant", fails)
    load = BackgroundLoad(model, device, constants_of(model, runner), no_progress)
    frames = []
    for _ in range(3):
        with pytest.raises(FormatError, match=r"No\.") as caught:
            load.wait()
        frames.append([entry.name for entry in caught.traceback])
    assert frames[0] == frames[1] == frames[2]
    assert frames[0][-1] == "fails"
    load.cancel()
    runner.close()


@pytest.mark.parametrize("wait", [True, False])
def test_progress_is_told_until_the_first_answer(tiny_models: TinyModels, wait: bool) -> None:
    told: list[str] = []
    path = str(tiny_models("tiny-qwen2", "q4_k"))
    with LLM(
        path, "cpu", context=64, wait=wait, progress=lambda task, *_: told.append(task)
    ) as llm:
        expected = llm.generate([5, 6, 7], max_tokens=8).tokens
        assert "Loading weights" in told
        told.clear()
        llm._runner.current.plan.devices[0].lose("it was asked to")
        with pytest.warns(DeviceWarning, match="it was asked to"):
            assert llm.generate([5, 6, 7], max_tokens=8).tokens == expected
        assert told == []
