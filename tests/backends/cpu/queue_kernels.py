"""Small kernels of known effect for the queue's tests, and packets that run them.

`count` adds 1 to the 32-bit word of each workgroup that it runs; `step` turns x of one 64-bit word
into 3·x + its constant, with nothing atomic about it; `meet` waits until it has been entered twice
(first word), and counts in the second word how often it has seen that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from crossinfer.aql.packets import BarrierAnd, KernelDispatch, Packet, encode_packets
from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET, CpuKernel
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed
from crossinfer.backends.cpu.queue import NativeQueue
from crossinfer.backends.cpu.signal_pool import OwnedSignals, SignalPool
from crossinfer.core.dtypes import Array
from crossinfer.hal.kernel import Kernel
from crossinfer.jit.object_cache import load_cached
from crossinfer.jit.target import host_target

_TEXT = """
define void @count(ptr %kernarg, i64 %first, i64 %workgroups, i32 %worker) {
entry:
  %words = load ptr, ptr %kernarg
  %end = add i64 %first, %workgroups
  br label %each
each:
  %group = phi i64 [ %first, %entry ], [ %next, %each ]
  %word.at = getelementptr i32, ptr %words, i64 %group
  %word = load i32, ptr %word.at
  %more = add i32 %word, 1
  store i32 %more, ptr %word.at
  %next = add i64 %group, 1
  %again = icmp ult i64 %next, %end
  br i1 %again, label %each, label %done
done:
  ret void
}

define void @step(ptr %kernarg, i64 %first, i64 %workgroups, i32 %worker) {
  %word.at = load ptr, ptr %kernarg
  %addend.at = getelementptr i8, ptr %kernarg, i64 64
  %addend = load i64, ptr %addend.at
  %word = load i64, ptr %word.at
  %tripled = mul i64 %word, 3
  %sum = add i64 %tripled, %addend
  store i64 %sum, ptr %word.at
  ret void
}

define void @meet(ptr %kernarg, i64 %first, i64 %workgroups, i32 %worker) {
entry:
  %here.at = load ptr, ptr %kernarg
  %met.at = getelementptr i64, ptr %here.at, i64 1
  %before = atomicrmw add ptr %here.at, i64 1 seq_cst, align 8
  br label %wait
wait:
  %turn = phi i64 [ 0, %entry ], [ %next, %more ]
  %here = load atomic i64, ptr %here.at acquire, align 8
  %both = icmp uge i64 %here, 2
  br i1 %both, label %met, label %more
more:
  %next = add i64 %turn, 1
  %patient = icmp ult i64 %next, 20000000000
  br i1 %patient, label %wait, label %done
met:
  %number = atomicrmw add ptr %met.at, i64 1 seq_cst, align 8
  br label %done
done:
  ret void
}
"""


@functools.cache
def kernel(name: str) -> Kernel:
    """One of the kernels above."""
    code = load_cached(_TEXT, host_target(), ["count", "step", "meet"])
    return Kernel(name, CpuKernel(code.address(name), code))


def address(name: str) -> int:
    handle = kernel(name).handle
    assert isinstance(handle, CpuKernel)
    return handle.address


class Stream:
    """Packets for one queue, and everything that they point to."""

    def __init__(self, queue: NativeQueue) -> None:
        self.queue = queue
        self.pool = SignalPool()
        self.packets: list[Packet] = []
        self._kept: list[Array | OwnedSignals] = []

    def dispatch(
        self,
        name: str,
        words: Array,
        grid: tuple[int, int, int] = (1, 1, 1),
        *,
        workgroup: tuple[int, int, int] = (1, 1, 1),
        addend: int = 0,
        barrier: bool = False,
        signal: int = 0,
    ) -> None:
        kernargs = allocate_zeroed(128)
        kernargs[:8].view(np.uint64)[0] = address_of(words)
        kernargs[CONSTANTS_OFFSET : CONSTANTS_OFFSET + 8].view(np.uint64)[0] = addend
        self._kept += [kernargs, words]
        self.packets.append(
            KernelDispatch(
                address(name),
                address_of(kernargs),
                grid,
                workgroup,
                barrier=barrier,
                completion_signal=signal,
            )
        )

    def wait_for(self, signals: Sequence[int], *, barrier: bool = False) -> None:
        self.packets.append(BarrierAnd(tuple(signals), barrier=barrier))

    def signals(self, count: int = 1, initial: int = 1) -> OwnedSignals:
        owned = self.pool.take(count, initial)
        self._kept.append(owned)
        return owned

    def submit(self) -> OwnedSignals:
        """The packets and one that drains the queue, whose signal is returned."""
        done = self.signals()
        last = BarrierAnd(barrier=True, completion_signal=done.signals.address(0))
        self.queue.submit(encode_packets([*self.packets, last]))
        self.packets = []
        return done

    def run(self, timeout_s: float = 30.0) -> None:
        done = self.submit()
        assert self.queue.wait(done.signals, 0, timeout_s), self.queue.error
