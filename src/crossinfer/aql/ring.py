"""The ring of packets, its two indices and its doorbell, as the submitting side sees them.

Indices count packets from the queue's start and never go back; packet i lies in slot i modulo the
ring's size. The submitter writes the bodies of its packets, then, as the last thing, the header of
the first, then the doorbell: the index of its last packet, which is the write index - 1. So a
processor never sees a part of what is submitted together, unless that is larger than the ring. The
processor marks slots that it is done with INVALID and moves the read index.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from crossinfer.aql.packets import PACKET_BYTES, PacketType
from crossinfer.core.dtypes import Array
from crossinfer.core.records import record

INDEX_MASK = (1 << 64) - 1
EMPTY_DOORBELL = INDEX_MASK
"""The doorbell of a queue that starts at index 0, before the first packet: 0 - 1."""

_INVALID = int(PacketType.INVALID)
_HEADERS_PER_SLOT = PACKET_BYTES // 2


class Words(Protocol):
    """Integers of one size in shared memory, each read and written by a single access."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class Slots(Protocol):
    """Bytes of shared memory as [slot, byte], written with NumPy's rules."""

    def __setitem__(self, where: tuple[slice | int, slice], values: Array, /) -> None: ...


@record
class RingMemory:
    """Where a queue lies: the ring twice (as bytes and as 16-bit words), indices and doorbell."""

    size: int
    slots: Slots
    headers: Words
    write_index: Words
    read_index: Words
    doorbell: Words

    @classmethod
    def over(
        cls,
        ring: memoryview,
        write_index: memoryview,
        read_index: memoryview,
        doorbell: memoryview,
    ) -> RingMemory:
        """Over mapped memory: the ring, and 8 bytes for each of the others."""
        flat = ring.cast("B")
        size = len(flat) // PACKET_BYTES
        if size & (size - 1) or size * PACKET_BYTES != len(flat) or not size:
            raise ValueError(f"a ring of {len(flat)} bytes does not hold 2^n packets")
        return cls(
            size,
            np.frombuffer(flat, dtype=np.uint8).reshape(size, PACKET_BYTES),
            flat.cast("H"),
            *(words.cast("B").cast("Q") for words in (write_index, read_index, doorbell)),
        )


def nothing() -> None:
    """The hook of a processor that needs none."""


class Ring:
    """One submitter's end of a queue; used by one thread at a time.

    `wait_for(index)` returns once the read index has reached `index` (compared modulo 2^64), or
    raises. `store_fence` makes all stores before it visible before those after it; where stores
    stay in order, as on x86-64 in cached memory, it may be `nothing`. `rung` is called after the
    doorbell was written.
    """

    def __init__(
        self,
        memory: RingMemory,
        *,
        wait_for: Callable[[int], None],
        store_fence: Callable[[], None] = nothing,
        rung: Callable[[], None] = nothing,
    ) -> None:
        self._memory = memory
        self._wait_for = wait_for
        self._store_fence = store_fence
        self._rung = rung
        self._write = memory.write_index[0]

    @property
    def size(self) -> int:
        """How many packets the ring holds."""
        return self._memory.size

    @property
    def free(self) -> int:
        """How many packets can be written without waiting."""
        return self.size - (self._write - self._memory.read_index[0] & INDEX_MASK)

    def clear(self) -> None:
        """Mark all slots INVALID, as a new queue must be handed to its processor."""
        for slot in range(self.size):
            self._memory.headers[slot * _HEADERS_PER_SLOT] = _INVALID

    def submit(self, packets: Array) -> None:
        """Hand over encoded packets, uint8 [n, 64]; waits while the ring is full.

        Raises what `wait_for` raises; the packets that found room before are then submitted.
        """
        done = 0
        while done < len(packets):
            if not self.free:
                # Half of the ring at once: waking for each slot would cost more than it brings.
                room = min(len(packets) - done, max(1, self.size // 2))
                self._wait_for(self._write + room - self.size & INDEX_MASK)
            part = packets[done : done + self.free]
            self._publish(part)
            done += len(part)

    def _publish(self, packets: Array) -> None:
        memory, slot = self._memory, self._write & (self.size - 1)
        header = int(packets[0, 0]) | int(packets[0, 1]) << 8
        memory.headers[slot * _HEADERS_PER_SLOT] = _INVALID
        before_wrap = min(len(packets), self.size - slot)
        memory.slots[slot, 2:] = packets[0, 2:]
        memory.slots[slot + 1 : slot + before_wrap, :] = packets[1:before_wrap]
        memory.slots[: len(packets) - before_wrap, :] = packets[before_wrap:]
        end = self._write + len(packets) & INDEX_MASK
        memory.write_index[0] = end
        self._store_fence()
        memory.headers[slot * _HEADERS_PER_SLOT] = header
        self._store_fence()
        memory.doorbell[0] = end - 1 & INDEX_MASK
        self._write = end  # not before: a submission that an exception cuts short never was
        self._rung()


def poll_for_space(
    read_index: Words, deadline_s: float, pause_s: float = 20e-6
) -> Callable[[int], None]:
    """A `wait_for` for processors that cannot wake anybody. Raises TimeoutError."""

    def wait_for(index: int) -> None:
        end = time.monotonic() + deadline_s
        while (read_index[0] - index & INDEX_MASK) >> 63:  # still before `index`
            if time.monotonic() > end:
                raise TimeoutError(f"the queue has not moved on within {deadline_s:g} seconds")
            time.sleep(pause_s)

    return wait_for
