"""The native queue: what runs, when, on how many threads, and what it costs to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.cpu.queue_kernels import Stream, address

from crossinfer.aql.packets import KERNEL_DISPATCH, BarrierAnd, KernelDispatch, encode_packets
from crossinfer.backends.cpu.memory import allocate_zeroed
from crossinfer.backends.cpu.processor import processor_text
from crossinfer.backends.cpu.queue import NativeQueue, usable_cores
from crossinfer.core.errors import KernelUnsupported
from crossinfer.jit import target
from crossinfer.jit.compile import compile_assembly, compile_object

THREADS = sorted({1, 2, 3, 2 * usable_cores() + 1, 17})


@pytest.fixture(params=THREADS)
def queue(request: pytest.FixtureRequest) -> Iterator[NativeQueue]:
    queue = NativeQueue(request.param, packets=64)
    yield queue
    queue.stop()


@pytest.fixture
def stream(queue: NativeQueue) -> Stream:
    return Stream(queue)


@pytest.mark.parametrize("groups", [1, 2, 3, 7, 31, 33, 64, 1000, 100_003])
def test_every_workgroup_runs_once(stream: Stream, groups: int) -> None:
    words = np.zeros(groups, dtype=np.int32)
    for _ in range(5):
        stream.dispatch("count", words, (groups, 1, 1), barrier=True)
    stream.run()
    assert (words == 5).all()


@pytest.mark.parametrize(
    ("grid", "workgroup", "groups"),
    [((3, 5, 7), (1, 1, 1), 105), ((100, 1, 1), (64, 1, 1), 2), ((9, 9, 2), (4, 3, 2), 9)],
)
def test_grids_are_in_work_items_and_flattened(
    stream: Stream,
    grid: tuple[int, int, int],
    workgroup: tuple[int, int, int],
    groups: int,
) -> None:
    words = np.zeros(groups + 1, dtype=np.int32)
    stream.dispatch("count", words, grid, workgroup=workgroup)
    stream.run()
    assert words.tolist() == [1] * groups + [0]


def test_barriers_keep_a_chain_in_order(stream: Stream) -> None:
    word = np.ones(1, dtype=np.uint64)
    expected = 1
    for addend in range(1000):  # many times the ring
        stream.dispatch("step", word, addend=addend, barrier=True)
        expected = (expected * 3 + addend) % 2**64
    stream.run()
    assert word[0] == expected


def test_barrier_packets_keep_a_chain_in_order(stream: Stream) -> None:
    word = np.ones(1, dtype=np.uint64)
    expected = 1
    for addend in range(100):
        signal = stream.signals().signals.address(0)
        stream.dispatch("step", word, addend=addend, signal=signal)
        stream.wait_for([0, signal, 0, signal])
        expected = (expected * 3 + addend) % 2**64
    stream.run()
    assert word[0] == expected


def test_a_signal_counts_its_packets_down(stream: Stream) -> None:
    word = np.zeros(1, dtype=np.uint64)
    owned = stream.signals(2, initial=5)
    for _ in range(4):
        stream.dispatch("step", word, barrier=True, signal=owned.signals.address(1))
    stream.run()
    assert [owned.signals.value(index) for index in range(2)] == [5, 1]
    start, end = owned.signals.times(1)
    assert 0 < start <= end <= time.monotonic_ns()


def test_a_host_signal_holds_the_queue_back(stream: Stream) -> None:
    word = np.ones(1, dtype=np.uint64)
    gate = stream.signals()
    stream.wait_for([gate.signals.address(0)])
    stream.dispatch("step", word, addend=4)
    done = stream.submit()
    assert not stream.queue.wait(done.signals, 0, 0.05)
    assert word[0] == 1
    gate.signals.store(0, 0)
    assert stream.queue.wait(done.signals, 0, 10)
    assert word[0] == 7


def test_submissions_in_flight_run_in_order(stream: Stream) -> None:
    word = np.ones(1, dtype=np.uint64)
    expected, pending = 1, []
    for addend in range(200):
        stream.dispatch("step", word, addend=addend, barrier=True)
        pending.append(stream.submit())
        expected = (expected * 3 + addend) % 2**64
    assert all(stream.queue.wait(done.signals, 0, 30) for done in reversed(pending))
    assert word[0] == expected


def test_a_full_ring_moves_on(queue: NativeQueue) -> None:
    stream = Stream(queue)
    words = np.zeros(500, dtype=np.int32)
    for _ in range(500):
        stream.dispatch("count", words, (500, 1, 1), barrier=True)
    stream.run()
    assert (words == 500).all()


def test_waiting_gives_up_at_its_timeout(queue: NativeQueue) -> None:
    signals = Stream(queue).signals().signals
    start = time.monotonic()
    assert not queue.wait(signals, 0, 0.03)
    assert 0.03 <= time.monotonic() - start < 5


def test_several_threads_wait_for_one_signal(queue: NativeQueue) -> None:
    stream = Stream(queue)
    gate = stream.signals()
    stream.wait_for([gate.signals.address(0)])
    done = stream.submit()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(queue.wait(done.signals, 0, 30)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    gate.signals.store(0, 0)
    for thread in threads:
        thread.join()
    assert answers == [True] * 4


def test_an_idle_queue_takes_no_processor_time(stream: Stream) -> None:
    words = np.zeros(1000, dtype=np.int32)
    stream.dispatch("count", words, (1000, 1, 1))
    stream.run()
    time.sleep(0.05)  # past the time in which workers look for more
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.03


@pytest.mark.parametrize("packets", [1, 2])
def test_workers_share_packets_and_packets_overlap(packets: int) -> None:
    """Two workgroups, of one packet or of two without a barrier, are entered before either ends."""
    queue = NativeQueue(2)
    stream = Stream(queue)
    for _ in range(20):
        words = np.zeros(2, dtype=np.uint64)
        for number in range(packets):
            stream.dispatch("meet", words, (2 // packets, 1, 1), barrier=number == 0)
        stream.run(300)
        assert words.tolist() == [2, 2]
    queue.stop()


@pytest.mark.parametrize("kind", [0, 1, 4, 5, 200])
def test_a_packet_of_an_unknown_kind_stops_the_queue(kind: int) -> None:
    queue = NativeQueue(2, packets=8)
    stream = Stream(queue)
    raw = encode_packets([BarrierAnd(), BarrierAnd()])
    raw[1, 0] = kind
    queue.submit(raw)
    done = stream.submit()
    assert not queue.wait(done.signals, 0, 10)
    assert queue.error == f"packet 1 is malformed (header 0x14{kind:02x})"
    with pytest.raises(TimeoutError, match="packet 1 is malformed"):
        queue.submit(encode_packets([BarrierAnd()] * 8))
    queue.stop()


@pytest.mark.parametrize("field", ["kernel_object", "grid_size", "workgroup_size"])
def test_a_dispatch_of_nothing_stops_the_queue(field: str) -> None:
    queue = NativeQueue(1)
    memory = allocate_zeroed(128)
    raw = encode_packets([KernelDispatch(address("count"), memory.ctypes.data, (1, 1, 1))])
    raw.reshape(-1).view(KERNEL_DISPATCH)[field] = 0
    queue.submit(raw)
    assert not queue.wait(Stream(queue).signals().signals, 0, 10)
    assert queue.error == "packet 0 is malformed (header 0x1402)"
    queue.stop()


@pytest.mark.parametrize(
    "machine",
    [
        *target.X86_TARGETS,
        *target.ARM_TARGETS,
        target.AVX2.for_triple(target.WINDOWS_X86),
        target.PLAIN_ARM.for_triple(target.MACOS_ARM),
    ],
    ids=lambda machine: f"{machine.name}-{machine.triple}",
)
def test_the_processor_compiles_for_every_platform(machine: target.Target) -> None:
    assert len(compile_object(processor_text(machine), machine)) > 1000
    wait = {"linux": "syscall", "windows": "WaitOnAddress", "darwin": "__ulock_wait"}
    called = next(name for system, name in wait.items() if system in machine.triple)
    assert called in compile_assembly(processor_text(machine), machine)


def test_an_unknown_system_is_refused() -> None:
    for triple in ("x86_64-unknown-freebsd", "riscv64-unknown-linux-gnu"):
        with pytest.raises(KernelUnsupported, match=triple):
            processor_text(target.PLAIN_X86.for_triple(triple))
