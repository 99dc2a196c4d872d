"""A queue of the CPU: ring and state in memory, and the threads that process its packets."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from crossinfer.aql.packets import PACKET_BYTES
from crossinfer.aql.ring import EMPTY_DOORBELL, Ring, RingMemory
from crossinfer.aql.signals import Signals
from crossinfer.backends.cpu.layout import NO_CLAIM, QUEUE, SLOT
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed
from crossinfer.backends.cpu.processor import Processor, load_processor
from crossinfer.core.dtypes import Array

RING_PACKETS = 1024
SPIN_NS = 50_000
"""How long a worker looks for work before it sleeps, if each has a core of its own."""
_BUSY_FACTOR = 4
"""As many times as long while other workers are still at it: about what waking it would cost."""
_SLICE_S = 0.1
"""Python gets a word in this often while it waits, for interrupts and errors of the queue."""


def usable_cores() -> int:
    """The number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class QueueMemory:
    """Ring, slots and state; lives as long as a worker or the queue holds it."""

    def __init__(self, packets: int, workers: int, spin_ns: int) -> None:
        self.ring = allocate_zeroed(packets * PACKET_BYTES)
        self._slots = allocate_zeroed(packets * SLOT.itemsize)
        self._bytes = allocate_zeroed(QUEUE.itemsize)
        self.address = address_of(self._bytes)
        self.state = self._bytes.view(QUEUE)[0]
        self.state["ring"] = address_of(self.ring)
        self.state["slots"] = address_of(self._slots)
        self.state["mask"] = packets - 1
        self.state["workers"] = workers
        self.state["spin_ns"] = spin_ns
        self.state["busy_spin_ns"] = spin_ns * _BUSY_FACTOR
        self.state["doorbell"] = EMPTY_DOORBELL
        self.state["claim"] = NO_CLAIM
        self.left_behind: dict[int, object] = {}
        """What workers that did not end in time may still touch, by worker: until they do."""

    def word(self, name: str) -> memoryview:
        """The bytes of a field of the state."""
        fields = QUEUE.fields
        assert fields is not None
        kind, offset = fields[name][:2]
        part: Array = self._bytes[offset : offset + kind.itemsize]
        return part.data


class NativeQueue:
    """Packets in, completion signals out. Raises MemoryError, KernelUnsupported.

    `spin_ns` is how long a worker looks for work before it sleeps. `view` lets tests watch and
    change what the submitter writes. `stop` ends the queue; so do the collection of a forgotten one
    and the interpreter's exit.
    """

    def __init__(
        self,
        threads: int,
        *,
        packets: int = RING_PACKETS,
        spin_ns: int | None = None,
        deadline_s: float = 60.0,
        view: Callable[[RingMemory], RingMemory] = lambda memory: memory,
    ) -> None:
        if spin_ns is None:
            # More threads than cores: who spins keeps the one from running that has the work.
            spin_ns = SPIN_NS if threads <= usable_cores() else 0
        self._spin_ns = spin_ns
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._processor = load_processor()
        self._memory = QueueMemory(packets, threads, spin_ns)
        words = (self._memory.word(name) for name in ("write_index", "read_index", "doorbell"))
        self._error = self._memory.word("error").cast("I")
        self.ring = Ring(
            view(RingMemory.over(self._memory.ring.data, *words)),
            wait_for=self._wait_for_space,
            store_fence=self._processor.fence,
            rung=self._ring_workers,
        )
        self.ring.clear()
        self._threads = [
            threading.Thread(
                target=_work,
                args=(self._processor, self._memory, worker),
                name=f"crossinfer-cpu-{worker}",
                daemon=True,  # at exit they are stopped below; nobody may wait for them before
            )
            for worker in range(threads)
        ]
        self._owner = os.getpid()
        self._stop = weakref.finalize(
            self, _stop, self._processor, self._memory, self._threads, self._owner
        )
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.stop()
            raise

    def submit(self, packets: Array) -> None:
        """Hand over encoded packets. Raises TimeoutError if a full ring does not move on.

        Weights are loaded by any thread, so that several may submit.
        """
        with self._lock:
            self.ring.submit(packets)

    def wait(
        self,
        signals: Signals,
        index: int,
        timeout_s: float,
        settled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Whether the signal is done within the time, or `settled` has become true.

        Stops waiting when the queue has an error.
        """
        address, patience = signals.address(index), _Patience(timeout_s)
        while not self._processor.wait_signal(address, patience.slice_ns, self._spin_ns // 10):
            if settled():
                return True
            if patience.is_over() or self.error is not None:
                return False
        return True

    def see_writes(self) -> None:
        """After a signal was seen done by other means than `wait`: its packet's writes are seen."""
        self._processor.fence()

    @property
    def error(self) -> str | None:
        """Why the queue stopped by itself, if it did."""
        header = self._error[0]
        if not header:
            return None
        return (
            f"packet {int(self._memory.state['error_index'])} is malformed "
            f"(header {header & 0xFFFF:#06x})"
        )

    def stop(self, patience_s: float | None = None, memory: object = None) -> None:
        """End and join the workers; what they have not started stays undone. Harmless twice.

        A worker whose kernel does not end within `patience_s` (None: no limit) is left alone, and
        keeps `memory` until it ends, if it ever does.
        """
        if self._stop.detach() is None:
            return
        stuck = _stop(self._processor, self._memory, self._threads, self._owner, patience_s)
        self._memory.left_behind.update(dict.fromkeys(stuck, memory))

    def _ring_workers(self) -> None:
        self._processor.rung(self._memory.address)

    def _wait_for_space(self, index: int) -> None:
        patience = _Patience(self._deadline_s)
        signed = int(np.uint64(index).astype(np.int64))
        while not self._processor.wait_space(self._memory.address, signed, patience.slice_ns):
            if self.error is not None:
                raise TimeoutError(self.error)
            if patience.is_over():
                raise TimeoutError(
                    f"the full queue did not move on within {self._deadline_s:g} seconds"
                )


class _Patience:
    """How long somebody still waits, in slices.

    A slice counts as one however long it took: a process that was stopped, or a machine that slept,
    has not kept the queue waiting.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = time.monotonic()

    @property
    def slice_ns(self) -> int:
        return int(max(0.0, min(self._left, _SLICE_S)) * 1e9)

    def is_over(self) -> bool:
        """Takes off the time since the last call."""
        now = time.monotonic()
        self._left -= min(now - self._since, _SLICE_S)
        self._since = now
        return self._left <= 0


def _work(processor: Processor, memory: QueueMemory, worker: int) -> None:
    processor.worker(memory.address, worker)
    memory.left_behind.pop(worker, None)


def _stop(
    processor: Processor,
    memory: QueueMemory,
    threads: Sequence[threading.Thread],
    owner: int,
    patience_s: float | None = None,
) -> list[int]:
    """The workers that have not ended."""
    if os.getpid() != owner:
        return []  # a fork has the memory, but not the threads
    processor.stop(memory.address)
    end = None if patience_s is None else time.monotonic() + patience_s
    for thread in threads:
        # A collection may run this on a thread of the queue itself, which is then about to end.
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
    return [worker for worker, thread in enumerate(threads) if thread.is_alive()]
