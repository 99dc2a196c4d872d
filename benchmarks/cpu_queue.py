"""python benchmarks/cpu_queue.py: what the CPU's queue costs, without any kernel's work in it.

Median of many runs; a loaded machine gives larger figures.
"""

from __future__ import annotations

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from unittest import mock

from crossinfer.aql.packets import BarrierAnd, KernelDispatch, encode_packets
from crossinfer.backends.cpu import CpuDevice
from crossinfer.backends.cpu.copy_kernel import copy_text
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed
from crossinfer.backends.cpu.processor import processor_text
from crossinfer.backends.cpu.queue import NativeQueue, usable_cores
from crossinfer.backends.cpu.signal_pool import SignalPool
from crossinfer.jit.object_cache import load_cached
from crossinfer.jit.target import host_target

NOTHING = """
define void @nothing(ptr %kernarg, i64 %first, i64 %workgroups, i32 %worker) {
  ret void
}
"""
PACKETS = 1000


def median(run: Callable[[], object], times: int, pause_s: float = 0.0) -> float:
    """Seconds."""
    taken = []
    for _ in range(times):
        time.sleep(pause_s)
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure_queue(threads: int) -> None:
    queue, pool = NativeQueue(threads), SignalPool()
    code = load_cached(NOTHING, host_target(), ["nothing"])
    kernargs = allocate_zeroed(128)
    done = pool.take()

    def packets(count: int, workgroups: int, *, barrier: bool) -> Callable[[], None]:
        dispatch = KernelDispatch(
            code.address("nothing"), address_of(kernargs), (workgroups, 1, 1), barrier=barrier
        )
        last = BarrierAnd(barrier=True, completion_signal=done.signals.address(0))
        encoded = encode_packets([dispatch] * count + [last])

        def run() -> None:
            done.signals.store(0, 1)
            queue.submit(encoded)
            assert queue.wait(done.signals, 0, 10), queue.error

        return run

    print(f"{threads} worker threads")
    for workgroups in (1, 16):
        for barrier in (False, True):
            seconds = median(packets(PACKETS, workgroups, barrier=barrier), 200)
            print(
                f"  {workgroups:2} workgroups, {'barriers' if barrier else 'no barriers':11} "
                f"{seconds / PACKETS * 1e9:5.0f} ns a packet, "
                f"{PACKETS / seconds / 1e6:.1f} M packets/s"
            )
    one = packets(1, 1, barrier=True)
    print(f"  submit to wait, workers awake  {median(one, 2000) * 1e6:6.1f} us")
    print(f"  submit to wait, workers asleep {median(one, 200, 0.002) * 1e6:6.1f} us")
    time.sleep(0.1)
    start = time.process_time()
    time.sleep(1)
    print(f"  idle: {(time.process_time() - start) * 1e3:.2f} ms of processor time a second")
    queue.stop()


def main() -> None:
    for threads in sorted({1, usable_cores(), 2 * usable_cores()}):
        measure_queue(threads)
    seconds = median(lambda: CpuDevice(threads=usable_cores()).close(), 300)
    print(f"open and close of a device: {seconds * 1e6:.0f} us")
    target = host_target()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ"):
        os.environ["CROSSINFER_CACHE"] = folder
        for name, text in (("processor", processor_text(target)), ("copy kernel", copy_text())):
            symbol = "crossinfer_worker" if name == "processor" else "crossinfer_copy"
            start = time.perf_counter()
            load_cached(text, target, [symbol])
            cold = time.perf_counter() - start
            warm = median(functools.partial(load_cached, text, target, [symbol]), 20)
            print(f"{name}: compiled and loaded {cold * 1e3:.0f} ms, cached {warm * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
