"""Opening, closing, forgetting, forking, replaying: nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.backends.d3d12.strict_recorder import StrictRecorder
from tests.backends.vulkan.vulkan_programs import chain, words
from tests.d3d12_driver import NO_DIRECT3D, has_direct3d, open_d3d12_or_skip
from tests.forked import check_fork
from tests.steps import step_runner
from tests.tiny_models import TinyModels

from crossinfer.backends.d3d12 import D3D12Device
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.encode import PART_COMMANDS
from crossinfer.backends.d3d12.interfaces import ID3D12Fence
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost
from crossinfer.engine.batch import Batch, Chunk
from crossinfer.models.model import load_model


def _count(device: D3D12Device) -> int:
    """References of the ID3D12Device, ours and those of everything that was made on it."""
    return _references(device.native.device)


def _references(held: ComObject) -> int:
    held.AddRef()
    return int(held.Release())


def test_a_closed_device_has_released_everything() -> None:
    keeper = open_d3d12_or_skip()
    chain(keeper, 3)  # its pipelines stay, for all devices of this adapter
    before = _count(keeper)
    with open_d3d12_or_skip() as device:
        assert device.shared is keeper.shared
        timer, parameters = device.timer(4), words(device)
        recording = chain(device, 2, parameters)
        device.submit(recording, b"1234").wait()
        device.download(parameters)
        assert timer.read() == [None] * 4
        assert len(device.native.references) > 10
        assert _count(keeper) > before
    assert len(device.native.references) == 0
    assert _count(keeper) == before
    keeper.close()


def test_forgotten_recordings_and_timers_go(device: D3D12Device) -> None:
    parameters = words(device)

    def use() -> None:
        timer, recorder = device.timer(2), device.recorder(parameters)
        recorder.timestamp(timer, 0)
        device.submit(recorder.finish(), bytes(16)).wait()
        recording = chain(device, 40)
        device.submit(recording).wait()
        for buffer in recording.buffers:
            buffer.free()

    use()
    counts = []
    for _ in range(5):
        use()
        gc.collect()
        counts.append((len(device.native.references), _count(device)))
    assert counts[1:] == counts[1:2] * 4


def test_freed_buffers_go_back_to_the_driver(device: D3D12Device) -> None:
    words(device).free()
    before = _count(device)
    for _ in range(3):
        buffers = [device.alloc((1 << 20,), DType.F32) for _ in range(20)]
        assert _count(device) == before + 20
        for buffer in buffers:
            buffer.free()
        assert _count(device) == before
    assert device.memory_in_use == 0


def test_a_download_that_was_kept_goes_with_its_memory(device: D3D12Device) -> None:
    for fill in (1, 2):
        buffer = words(device, fill, count=8 << 20)
        assert np.frombuffer(device.download(buffer.view(0, 4)), np.int32)[0] == fill
        buffer.free()


@pytest.mark.parametrize("closed", [False, True])
def test_a_forgotten_device_is_collected(closed: bool) -> None:
    device = open_d3d12_or_skip()
    device.submit(chain(device, 1))
    if closed:
        device.close()
    dead, native = weakref.ref(device), device.native
    del device
    gc.collect()
    assert dead() is None
    assert len(native.references) == 0


def test_a_replayed_step_only_executes(strict: StrictRecorder, strict_device: D3D12Device) -> None:
    """No recording, no allocation: also not for the download of a few bytes."""
    device = strict_device
    parameters, result = words(device), words(device, 7)
    recording = chain(device, 2 * PART_COMMANDS + 6, parameters)
    for _ in range(2):
        device.submit(recording, bytes(100)).wait()
        device.download(result.view(0, 4))
    strict.calls.clear()
    for _ in range(5):
        device.submit(recording, bytes(100)).wait()
        assert np.frombuffer(device.download(result.view(0, 4)), np.int32)[0] == 7
    assert set(strict.calls) <= {
        "ID3D12CommandQueue.ExecuteCommandLists",
        "ID3D12CommandQueue.Signal",
        "ID3D12Fence.GetCompletedValue",
    }
    # Three parts and the parameters before them; a list each, since buffers decay between calls.
    assert strict.calls.count("ID3D12CommandQueue.ExecuteCommandLists") == 5 * (1 + 3 + 1)


def test_a_thousand_replays_of_a_model_grow_nothing(
    device: D3D12Device, tiny_models: TinyModels
) -> None:
    model = load_model(tiny_models("tiny-llama", "q4_k"))
    with step_runner(model, [device]) as runner:

        def decode(times: int) -> None:
            chunk = Chunk([5], 9, [1], [0])
            for _ in range(times):
                runner.run(Batch((chunk,)), want_logits=False)

        decode(50)
        gc.collect()
        before = _held(device)
        memory = _resident_bytes()
        decode(1000)
        gc.collect()
        assert _held(device) == before
        assert _resident_bytes() - memory < 4 << 20


def _held(device: D3D12Device) -> tuple[int, ...]:
    handles = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    return (
        len(device.native.references),
        _count(device),
        handles,
        len(device._in_flight._recordings),
    )


def _resident_bytes() -> int:
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


@contextlib.contextmanager
def _blocked(device: D3D12Device) -> Iterator[None]:
    """The queue waits for a fence that only the end of the block signals."""
    gate = device.native.device.create("CreateFence", ID3D12Fence, 0, 0)
    device.native.queue.Wait(gate, 1)
    signal_it = gate.Signal
    try:
        yield
    finally:
        signal_it(1)


def test_a_queue_that_hangs_is_lost_and_can_be_closed() -> None:
    """It is left alone: releasing what a queue still uses could harm the whole process."""
    device = open_d3d12_or_skip()
    parameters = words(device)
    recording = chain(device, 2, parameters)
    shared = device.shared
    (pipeline, *_) = shared.pipelines._pipelines.values()
    witness = ComObject.adopt(pipeline.state.address, pipeline.state.interface, shared.api.abi)
    with _blocked(device):
        fence = device.submit(recording, b"1234")
        assert not fence.done
        with pytest.raises(DeviceLost, match=r"no answer within 0\.2 seconds"):
            fence.wait(0.2)
        before, users = _count(device), _references(witness)
        del recording, fence, parameters
        gc.collect()
        assert _count(device) == before
        device.close()
        assert _references(witness) == users + 1  # for ever
        assert shared.is_stale
    witness.release()
    with open_d3d12_or_skip() as again:  # a device of its own
        assert again.shared is not shared
        again.submit(chain(again, 1)).wait()


_END_OF_A_PROCESS = """
import sys
from tests.backends.vulkan.vulkan_programs import chain
from crossinfer.backends.d3d12 import open_d3d12
from crossinfer.backends.d3d12.interfaces import ID3D12Fence
from crossinfer.core.errors import DeviceLost

device = open_d3d12(deadline_s=600)
recording = chain(device, 2)
device.submit(recording).wait()
if sys.argv[1] == "hung":
    device.native.queue.Wait(device.native.device.create("CreateFence", ID3D12Fence, 0, 0), 1)
fence = device.submit(recording)
if sys.argv[1] == "hung":
    try:
        fence.wait(0.1)
    except DeviceLost:
        print("lost")
if sys.argv[1] == "raised":
    raise ValueError("the end")
sys.exit(5)
"""


@pytest.mark.parametrize(("how", "code"), [("open", 5), ("hung", 5), ("raised", 1)])
def test_a_process_may_end_with_a_device(how: str, code: int) -> None:
    """What is open at the end, at work or hung, is left to the system."""
    if not has_direct3d():
        pytest.skip(NO_DIRECT3D)
    starter = [os.environ["D3D12_RUN"]] if "D3D12_RUN" in os.environ else []
    done = subprocess.run(
        [*starter, sys.executable, "-c", _END_OF_A_PROCESS, how],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ("lost\n" if how == "hung" else "")
    assert done.stderr.splitlines()[-1:] == (["ValueError: the end"] if how == "raised" else [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork here.")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_has_no_device(device: D3D12Device) -> None:
    buffer, recording = words(device, 5), chain(device, 2)
    check_fork(device, buffer, 5, recording)
