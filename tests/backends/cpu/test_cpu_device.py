"""What the CPU device does beyond the conformance suite: packets, parameters, loss."""

from __future__ import annotations

import gc
import struct
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.cpu.queue_kernels import kernel

from crossinfer.aql.packets import BarrierAnd, KernelDispatch, Packet, decode_packet
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.cpu.encode import EncodedRecording
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceLost, InvalidUse, OutOfDeviceMemory
from crossinfer.hal.buffer import Access, Binding, Buffer
from crossinfer.hal.kernel import Dispatch, Kernel
from crossinfer.hal.recording import Recording


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice(threads=2) as opened:
        yield opened


def step(buffer: Buffer, addend: int, offset: int = 0) -> Dispatch:
    """64-bit word x of the buffer becomes 3·x + addend."""
    binding = Binding(buffer.view(offset, 8), Access.READ_WRITE)
    return Dispatch(kernel("step"), (binding,), struct.pack("<q", addend))


def meeting(device: CpuDevice) -> tuple[Recording, Array]:
    """A recording that ends when somebody else writes 2 to the first word of this memory."""
    buffer = device.alloc((64,), DType.I32)
    device.write(buffer.view(), bytes(256))
    recorder = device.recorder()
    recorder.dispatch(Dispatch(kernel("meet"), (Binding(buffer.view(), Access.READ_WRITE),)))
    assert isinstance(buffer.handle, np.ndarray)
    return recorder.finish(), buffer.handle


def packets(recording: Recording) -> list[Packet | None]:
    assert isinstance(recording.handle, EncodedRecording)
    return [decode_packet(row) for row in recording.handle.packets]


def test_barrier_bits_are_where_the_recorder_put_barriers(device: CpuDevice) -> None:
    first, second = (device.alloc((128,), DType.I32) for _ in range(2))
    timer = device.timer(1)
    recorder = device.recorder()
    recorder.dispatch(step(first, 1))  # the first of a recording
    recorder.dispatch(step(second, 2))
    recorder.dispatch(step(first, 3, offset=256))
    recorder.dispatch(step(first, 4))  # needs the first to have finished
    recorder.copy_region(second.view(256), first.view(256))
    recorder.copy_region(first.view(0, 256), second.view(0, 256))  # needs the fourth
    recorder.timestamp(timer, 0)
    recorder.dispatch(step(first, 5))
    recorder.dispatch(step(second, 6))
    recording = recorder.finish()
    found = packets(recording)
    bits = [packet.barrier for packet in found if packet is not None]
    assert bits == [True, False, False, True, False, True, True, True, False, True]
    kinds = [type(packet) for packet in found]
    assert kinds == [KernelDispatch] * 6 + [BarrierAnd] + [KernelDispatch] * 2 + [BarrierAnd]
    signals = [packet.completion_signal != 0 for packet in found if packet is not None]
    assert signals == [False] * 6 + [True] + [False] * 2 + [True]


def test_dispatches_see_their_views_constants_and_grid(device: CpuDevice) -> None:
    buffer = device.alloc((1 << 16,), DType.I32)
    device.write(buffer.view(), np.zeros(1 << 16, dtype=np.int32))
    recorder = device.recorder()
    view = Binding(buffer.view(256, 1024 * 4), Access.READ_WRITE)
    recorder.dispatch(Dispatch(kernel("count"), (view,), grid=(2, 3, 5)))
    device.submit(recorder.finish()).wait()
    words = np.frombuffer(device.download(buffer), dtype=np.int32)
    assert words[64:94].tolist() == [1] * 30
    assert words.sum() == 30


def test_copies_of_any_size(device: CpuDevice) -> None:
    rng = np.random.default_rng(5)
    for size in (1, 255, 65_536, 65_537, 1_000_003):
        data = rng.bytes(size)
        source = device.alloc((size,), DType.F32)
        target = device.alloc((size,), DType.F32)
        device.write(source.view(), data)
        device.write(target.view(), bytes(4 * size))
        recorder = device.recorder()
        recorder.copy_region(source.view(0, size), target.view(0, size))
        device.submit(recorder.finish()).wait()
        assert (
            device.download(target)
            == data.ljust(target.size_in_bytes, b"\0")[: 4 * size]
            + device.download(target)[4 * size :]
        )


def test_replays_keep_the_order_of_everything(device: CpuDevice) -> None:
    buffer = device.alloc((64,), DType.I32)
    device.write(buffer.view(), struct.pack("<Q", 1))
    recordings = []
    for addend in range(8):
        recorder = device.recorder()
        for number in range(20):
            recorder.dispatch(step(buffer, addend + number))
        recordings.append(recorder.finish())
    expected = 1
    for turn in range(200):
        recording = recordings[turn % 8]
        if recording.fence is not None:
            recording.fence.wait()
        device.submit(recording)
        for number in range(20):
            expected = (expected * 3 + turn % 8 + number) % 2**64
    assert struct.unpack_from("<Q", device.download(buffer)) == (expected,)


def test_parameters_wait_for_their_turn(device: CpuDevice) -> None:
    """Three submissions behind one that cannot end yet, each with parameters of its own."""
    meeting, parameters, *targets = (device.alloc((64,), DType.I32) for _ in range(5))
    device.write(meeting.view(), bytes(256))
    device.write(parameters.view(), b"old " * 64)
    recorder = device.recorder()
    binding = Binding(meeting.view(), Access.READ_WRITE)
    recorder.dispatch(Dispatch(kernel("meet"), (binding,)))
    recorder.copy_region(parameters.view(), targets[0].view())
    device.submit(recorder.finish())
    recordings = []
    for target in targets[1:]:
        recorder = device.recorder(parameters)
        recorder.copy_region(parameters.view(), target.view())
        recordings.append(recorder.finish())
    for recording, params in zip(recordings, (b"new!" * 64, b"next"), strict=True):
        device.submit(recording, params)
    time.sleep(0.02)
    memory = parameters.handle
    assert isinstance(memory, np.ndarray)
    assert memory.tobytes() == b"old " * 64
    device_memory = meeting.handle
    assert isinstance(device_memory, np.ndarray)
    device_memory[:8].view(np.uint64)[0] = 2
    contents = [device.download(target) for target in targets]
    assert contents[0][:8] == b"old old "
    assert contents[1] == b"new!" * 64
    assert contents[2] == b"next" + b"new!" * 63
    for recording, params in zip(recordings, (b"A" * 256, b""), strict=True):
        device.submit(recording, params).wait()
    assert [device.download(target) for target in targets[1:]] == [b"A" * 256] * 2


def test_threads_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    before = threading.active_count()

    def fail_at_the_third(thread: threading.Thread) -> None:
        if thread.name == "crossinfer-cpu-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_at_the_third)
    with pytest.raises(OutOfDeviceMemory, match="cannot start 4 threads"):
        CpuDevice(threads=4)
    assert threading.active_count() == before


def test_a_fence_stays_done_when_its_recording_runs_again(device: CpuDevice) -> None:
    buffer = device.alloc((64,), DType.I32)
    recorder = device.recorder()
    recorder.dispatch(step(buffer, 1))
    recording = recorder.finish()
    first = device.submit(recording)
    first.wait()
    for _ in range(100):
        second = device.submit(recording)
        assert first.done
        first.wait()
        second.wait()
        assert second.done


def test_a_fence_may_be_waited_for_from_many_threads(device: CpuDevice) -> None:
    buffer = device.alloc((64,), DType.I32)
    recorder = device.recorder()
    for _ in range(500):
        recorder.dispatch(step(buffer, 1))
    recording = recorder.finish()
    for _ in range(20):
        fence = device.submit(recording)
        threads = [threading.Thread(target=fence.wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert fence.done


def test_a_foreign_kernel_is_refused(device: CpuDevice) -> None:
    recorder = device.recorder()
    recorder.dispatch(Dispatch(Kernel("other", None), ()))
    with pytest.raises(InvalidUse, match="Kernel other is not one of this device"):
        recorder.finish()


def test_a_queue_that_does_not_answer_is_lost_and_closes(device: CpuDevice) -> None:
    recording, words = meeting(device)
    fence = device.submit(recording)
    with pytest.raises(DeviceLost, match=r"while running meet: no answer within 0\.05 seconds"):
        fence.wait(0.05)
    assert fence.done
    with pytest.raises(DeviceLost, match=r"0\.05"):
        device.recorder()
    words[:8].view(np.uint64)[0] = 2  # somebody else
    device.close()


def test_a_kernel_that_never_ends_does_not_hold_up_close(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossinfer.backends.cpu.device.STUCK_S", 0.1)
    recording, words = meeting(device)
    with pytest.raises(DeviceLost):
        device.submit(recording).wait(0.05)
    memory = weakref.ref(words)
    start = time.monotonic()
    device.close()
    del recording, words
    gc.collect()
    assert time.monotonic() - start < 10
    stuck = [t for t in threading.enumerate() if t.name.startswith("crossinfer-cpu-")]
    assert len(stuck) == 1
    kept = memory()
    assert kept is not None, "the kernel still writes there"
    kept[:8].view(np.uint64)[0] = 2  # somebody else
    del kept
    stuck[0].join(10)
    assert not stuck[0].is_alive()
    assert memory() is None


def test_a_loss_ends_the_waits_of_other_threads(device: CpuDevice) -> None:
    recording, words = meeting(device)
    fence = device.submit(recording)
    seen: list[DeviceLost] = []

    def wait() -> None:
        with pytest.raises(DeviceLost) as caught:
            fence.wait()
        seen.append(caught.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    lost = device.lose("somebody pulled the plug")
    waiting.join(10)
    words[:8].view(np.uint64)[0] = 2  # somebody else
    assert seen == [lost]


def test_a_wait_ends_though_the_recording_runs_again(device: CpuDevice) -> None:
    recording, words = meeting(device)
    count = words[:8].view(np.uint64)
    fence = device.submit(recording)
    waiting = threading.Thread(target=fence.wait)
    waiting.start()
    time.sleep(0.05)
    count[0] = 2  # somebody else
    while not fence.done:
        time.sleep(0)
    count[0] = 0
    again = device.submit(recording)  # before the other thread has had a look, mostly
    waiting.join(10)
    assert not waiting.is_alive()
    assert not again.done
    count[0] = 2
    again.wait()


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_that_are_none(threads: int) -> None:
    with pytest.raises(InvalidUse, match=f"with {threads} threads"):
        CpuDevice(threads=threads)


def test_a_malformed_packet_loses_the_device(device: CpuDevice) -> None:
    recording = device.recorder().finish()
    assert isinstance(recording.handle, EncodedRecording)
    recording.handle.packets[0, 0] = 4
    with pytest.raises(DeviceLost, match=r"packet 0 is malformed \(header 0x1504\)"):
        device.submit(recording).wait()
