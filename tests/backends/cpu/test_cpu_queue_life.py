"""Threads, memory and files of queues and devices: opened, forgotten, forked, left at exit."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from tests.backends.cpu.queue_kernels import Stream

from crossinfer.backends.cpu import CpuDevice, list_devices, open_device
from crossinfer.backends.cpu.memory import address_of, allocate
from crossinfer.backends.cpu.queue import NativeQueue, usable_cores
from crossinfer.core.dtypes import DType
from crossinfer.hal.info import DeviceKind

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def workers() -> int:
    return sum(thread.name.startswith("crossinfer-cpu") for thread in threading.enumerate())


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_script(text: str, expected: str) -> None:
    """It exits cleanly, with exactly this output."""
    done = run_script(text)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)


def resident_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@linux_only
def test_a_thousand_devices_leave_nothing() -> None:
    def cycle() -> None:
        device = CpuDevice(threads=2)
        buffer = device.alloc((1000,), DType.F32)
        recorder = device.recorder()
        recorder.copy_region(buffer.view(0, 1024), buffer.view(2048, 1024))
        device.submit(recorder.finish()).wait()
        device.close()

    def lowest_kilobytes() -> int:
        """Over so many devices that a slab of 16 MB, which fills meanwhile, begins anew."""
        found = []
        for _ in range(20):
            for _ in range(25):
                cycle()
            gc.collect()
            found.append(resident_kilobytes())
        return min(found)

    memory = lowest_kilobytes()
    threads = threading.active_count()
    files, tasks = (len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))
    for _ in range(500):
        cycle()
    assert lowest_kilobytes() < memory + 4000
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files
    assert len(os.listdir("/proc/self/task")) <= tasks


def test_a_forgotten_queue_ends_its_threads() -> None:
    before = workers()
    queue = NativeQueue(3)
    assert workers() == before + 3
    gone = weakref.ref(queue)
    del queue
    gc.collect()
    assert gone() is None
    assert workers() == before


def test_a_forgotten_device_in_flight_ends_before_its_memory_goes() -> None:
    before = workers()
    for _ in range(5):
        device = CpuDevice(threads=2)
        source, target = (device.alloc((1 << 20,), DType.I32) for _ in range(2))
        recorder = device.recorder()
        for _ in range(20):
            recorder.copy_region(source.view(), target.view())
        device.submit(recorder.finish())
        del device, source, target, recorder
        gc.collect()
    assert workers() == before


def test_stopping_twice_is_harmless_and_does_not_wait_for_what_is_queued() -> None:
    queue = NativeQueue(2)
    stream = Stream(queue)
    gate = stream.signals()
    stream.wait_for([gate.signals.address(0)])
    done = stream.submit()
    start = time.monotonic()
    queue.stop()
    queue.stop()
    assert time.monotonic() - start < 10
    assert done.signals.value(0) == 1


def test_signals_go_back_to_their_pool() -> None:
    queue = NativeQueue(1)
    pool = Stream(queue).pool
    first = pool.take(3)
    address = first.signals.address(0)
    first.signals.store(1, 77)
    del first
    gc.collect()
    taken = [pool.take(3, initial=4) for _ in range(30)]
    again = next(owned for owned in taken if owned.signals.address(0) == address)
    assert [again.signals.value(index) for index in range(3)] == [4, 4, 4]
    assert len({owned.signals.address(0) for owned in taken}) == 30
    queue.stop()


def test_the_exit_is_clean_without_close() -> None:
    check_script(
        """
        from crossinfer.core.dtypes import DType
        from crossinfer.hal.registry import open_device
        from crossinfer.backends.cpu import CpuDevice
        device = CpuDevice(threads=3)
        source, target = (device.alloc((1 << 22,), DType.I32) for _ in range(2))
        recorder = device.recorder()
        for _ in range(50):
            recorder.copy_region(source.view(), target.view())
        fence = device.submit(recorder.finish())
        print("submitted")
        """,
        "submitted\n",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_no_device_and_says_so() -> None:
    check_script(
        """
        import os
        from crossinfer.backends.cpu import CpuDevice
        from crossinfer.core.dtypes import DType
        from crossinfer.core.errors import DeviceLost
        device = CpuDevice(threads=2)
        buffer = device.alloc((64,), DType.I32)
        recorder = device.recorder()
        recorder.copy_region(buffer.view(0, 4), device.alloc((64,), DType.I32).view(0, 4))
        recording = recorder.finish()
        fence = device.submit(recording)
        if (child := os.fork()) == 0:
            for call in (fence.wait, device.recorder, lambda: device.submit(recording),
                         lambda: device.download(buffer), device.wait_idle):
                try:
                    call()
                except DeviceLost as error:
                    assert "was forked" in str(error), error
                else:
                    assert call == fence.wait, call  # it may have ended before the fork
            buffer.free()
            device.close()
            with CpuDevice(threads=2) as own:
                copy = own.alloc((64,), DType.I32)
                own.write(copy.view(), bytes(range(256)))
                recorder = own.recorder()
                target = own.alloc((64,), DType.I32)
                recorder.copy_region(copy.view(), target.view())
                own.submit(recorder.finish()).wait()
                assert own.download(target) == bytes(range(256))
            print("child", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        device.submit(recording).wait()
        device.close()
        print("parent")
        """,
        "child\nparent\n",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_can_compile_though_its_parent_was_at_it() -> None:
    check_script(
        """
        import os, signal, threading, time
        from crossinfer.backends.cpu.kernels.swiglu import build_swiglu
        from crossinfer.backends.cpu import library as cpu_library
        from crossinfer.jit.target import host_target
        library, building = cpu_library.KernelLibrary(host_target()), threading.Event()

        def build(target):
            building.set()
            time.sleep(0.3)
            return build_swiglu(target)

        compiling = threading.Thread(target=library.get, args=("swiglu", "swiglu", build))
        # Not in the cache, so that it is built.
        cpu_library.kernel_code = lambda: os.urandom(8).hex()
        compiling.start()
        building.wait()
        if (child := os.fork()) == 0:
            signal.alarm(20)
            library.get("swiglu", "swiglu", build_swiglu)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        compiling.join()
        """,
        "0\n",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_only_exits_is_clean() -> None:
    check_script(
        """
        import os, sys
        from crossinfer.backends.cpu import CpuDevice
        device = CpuDevice(threads=2)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent")
        """,
        "parent\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="sends itself a signal")
def test_waiting_can_be_interrupted() -> None:
    check_script(
        """
        import signal, time
        from crossinfer.aql.packets import BarrierAnd, encode_packets
        from crossinfer.backends.cpu.queue import NativeQueue
        from crossinfer.backends.cpu.signal_pool import SignalPool
        queue = NativeQueue(2)
        owned = SignalPool().take()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        try:
            queue.wait(owned.signals, 0, 60)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 5)
        """,
        "interrupted True\n",
    )


@linux_only
def test_a_stopped_process_has_not_waited() -> None:
    """As after Ctrl-Z and `fg`: the device had no time to answer in, so it is not lost."""
    check_script(
        """
        import os, signal, subprocess, sys, time
        from crossinfer.aql.packets import BarrierAnd, encode_packets
        from crossinfer.backends.cpu.queue import NativeQueue
        from crossinfer.backends.cpu.signal_pool import SignalPool
        queue, pool = NativeQueue(1), SignalPool()
        gate, done = pool.take(), pool.take()
        dependencies = (gate.signals.address(0),)
        packet = BarrierAnd(dependencies, completion_signal=done.signals.address(0))
        queue.submit(encode_packets([packet]))
        signal.signal(signal.SIGALRM, lambda *_: gate.signals.store(0, 0))
        script = f"sleep 0.3; kill -STOP {os.getpid()}; sleep 1.5; kill -CONT {os.getpid()}"
        helper = subprocess.Popen(["sh", "-c", script + f"; sleep 0.2; kill -ALRM {os.getpid()}"])
        start = time.monotonic()
        print(queue.wait(done.signals, 0, 1.2), time.monotonic() - start > 1.5)
        helper.wait()
        queue.stop()
        """,
        "True True\n",
    )


def test_threads_are_as_many_as_asked_for() -> None:
    before = workers()
    with CpuDevice(threads=5):
        assert workers() == before + 5
    with open_device(0, threads=1):
        assert workers() == before + 1
    with open_device(0, threads=usable_cores() + 3):  # more would take turns on the cores
        assert workers() == before + usable_cores()
    with open_device(0):
        assert workers() == before + usable_cores()
    assert workers() == before


def test_who_it_is() -> None:
    (info,) = list_devices()
    assert (info.name, info.kind) == ("cpu", DeviceKind.CPU)
    assert info.driver.startswith("llvmlite ")
    assert info.description


@pytest.mark.parametrize("size", [1, 63, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_memory_is_aligned_and_can_be_written(size: int) -> None:
    memory = allocate(size)
    assert memory.size == size
    assert memory.ctypes.data % 128 == 0
    memory[:] = np.arange(size, dtype=np.int64).astype(np.uint8)
    assert int(memory[-1]) == (size - 1) % 256


@linux_only
def test_large_memory_is_private() -> None:
    """Shared memory gets no large pages as systems are set up, whatever is asked for."""
    memory = allocate(8 << 20)
    place = memory.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions = line.split()[:2]
        start, end = (int(number, 16) for number in span.split("-"))
        if start <= place < end:
            assert permissions == "rw-p"
            return
    pytest.fail("the memory is not mapped")


@linux_only
def test_a_kernel_without_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: object) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    memory = allocate(32 << 20)
    memory[:] = 1
    assert int(memory.sum()) == 32 << 20


def test_memory_that_is_not_there() -> None:
    with pytest.raises(MemoryError):
        allocate(1 << 60)


def test_pieces_of_a_slab_do_not_overlap() -> None:
    sizes = [64 << 10, 100_001, 3 << 20, 12 << 20, 5 << 20, (64 << 10) + 1]
    pieces = [allocate(size) for size in sizes]
    for number, piece in enumerate(pieces):
        piece[:] = number + 1
    for number, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        assert piece.size == size
        assert address_of(piece) % 128 == 0
        assert np.all(piece == number + 1)
