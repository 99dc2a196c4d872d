"""The submitter's end of a ring, against a processor that is played here."""

from __future__ import annotations

import dataclasses
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossinfer.aql.packets import KERNEL_DISPATCH, PacketType
from crossinfer.aql.ring import INDEX_MASK, Ring, RingMemory, Slots, Words, poll_for_space
from crossinfer.core.dtypes import Array

HEADER = 0x1502


def packets(first: int, count: int) -> Array:
    """Packets that carry the numbers first, first + 1, …"""
    raw = np.zeros((count, 64), dtype=np.uint8)
    rows = raw.reshape(-1).view(KERNEL_DISPATCH)
    rows["header"] = HEADER
    rows["setup"] = 1
    rows["kernel_object"] = np.arange(first, first + count)
    rows["completion_signal"] = ~rows["kernel_object"]
    return raw


class Log:
    """Stores to a ring's memory, in order."""

    def __init__(self) -> None:
        self.stores: list[tuple[str, object, object]] = []

    def words(self, name: str, words: Words) -> Words:
        return _LoggedWords(name, words, self)

    def watch(self, memory: RingMemory) -> RingMemory:
        return dataclasses.replace(
            memory,
            slots=_LoggedSlots(memory.slots, self),
            headers=self.words("header", memory.headers),
            write_index=self.words("write_index", memory.write_index),
            doorbell=self.words("doorbell", memory.doorbell),
        )


@dataclasses.dataclass
class _LoggedWords:
    name: str
    words: Words
    log: Log

    def __getitem__(self, index: int, /) -> int:
        return self.words[index]

    def __setitem__(self, index: int, value: int, /) -> None:
        self.words[index] = value
        self.log.stores.append((self.name, index, value))


@dataclasses.dataclass
class _LoggedSlots:
    slots: Slots
    log: Log

    def __setitem__(self, where: tuple[slice | int, slice], values: Array, /) -> None:
        self.slots[where] = values
        self.log.stores.append(("slots", where, len(values)))


class Processor:
    """Takes packets up to the doorbell, as many at a time as it is told to."""

    def __init__(self, size: int, start: int = 0) -> None:
        self.size = size
        self.bytes = np.zeros(size * 64, dtype=np.uint8)
        self.indices = [np.array([start], dtype=np.uint64) for _ in range(2)]
        self.doorbell = np.array([start - 1 & INDEX_MASK], dtype=np.uint64)
        self.log = Log()
        self.taken: list[int] = []
        self.waits: list[int] = []
        self.rung: list[int] = []
        memory = RingMemory.over(
            self.bytes.data, self.indices[0].data, self.indices[1].data, self.doorbell.data
        )
        self.ring = Ring(
            self.log.watch(memory),
            wait_for=self._wait_for,
            store_fence=lambda: self.log.stores.append(("fence", 0, 0)),
            rung=lambda: self.rung.append(int(self.doorbell[0])),
        )
        self.ring.clear()
        self.log.stores.clear()

    @property
    def read_index(self) -> int:
        return int(self.indices[1][0])

    def take(self, most: int) -> int:
        """How many packets there were."""
        count = 0
        while count < most and (int(self.doorbell[0]) - self.read_index & INDEX_MASK) >> 63 == 0:
            slot = self.bytes.reshape(-1, 64)[self.read_index % self.size]
            row = slot.view(KERNEL_DISPATCH)[0]
            assert row["header"] == HEADER, f"packet {self.read_index} is not there"
            assert row["completion_signal"] == ~row["kernel_object"]
            self.taken.append(int(row["kernel_object"]))
            slot[:] = 0xEE
            slot[:2] = PacketType.INVALID, 0
            self.indices[1][0] = self.read_index + 1 & INDEX_MASK
            count += 1
        return count

    def _wait_for(self, index: int) -> None:
        self.waits.append(index)
        while (self.read_index - index & INDEX_MASK) >> 63:
            assert self.take(1), "the submitter waits for what it has not handed over"


STARTS = st.sampled_from([0, 5, 2**32 - 3, 2**63 - 2, 2**64 - 7])
STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=40)


@settings(deadline=None)
@given(STARTS, st.integers(0, 4), STEPS)
def test_every_packet_arrives_once_and_in_order(
    start: int, bits: int, steps: list[tuple[int, int]]
) -> None:
    processor = Processor(1 << bits, start)
    given_ = 0
    for count, taken in steps:
        processor.ring.submit(packets(given_, count))
        given_ += count
        end = start + given_ & INDEX_MASK
        assert int(processor.indices[0][0]) == end
        assert int(processor.doorbell[0]) == end - 1 & INDEX_MASK
        processor.take(taken)
        assert processor.ring.free == processor.size - (end - processor.read_index & INDEX_MASK)
    processor.take(given_)
    assert processor.taken == list(range(given_))
    headers = processor.bytes.view(np.uint16)[::32]
    assert (headers == PacketType.INVALID).all()


@settings(deadline=None)
@given(STARTS, st.integers(0, 4), STEPS)
def test_what_fits_is_handed_over_at_once_and_header_last(
    start: int, bits: int, steps: list[tuple[int, int]]
) -> None:
    processor = Processor(1 << bits, start)
    for count, taken in steps:
        free = processor.ring.free
        processor.log.stores.clear()
        waits = len(processor.waits)
        processor.ring.submit(packets(0, count))
        check_order_of_stores(processor.log)
        if count <= free:
            names = [name for name, _, _ in processor.log.stores]
            assert names.count("doorbell") == min(count, 1)
            assert len(processor.waits) == waits
        else:
            assert len(processor.waits) > waits
        processor.take(taken)


def check_order_of_stores(log: Log) -> None:
    """INVALID, bodies, write index, fence, the first header, fence, doorbell; perhaps again."""
    stores = list(log.stores)
    while stores:
        (first, slot, invalid), *stores = stores
        assert (first, invalid) == ("header", PacketType.INVALID)
        while stores[0][0] == "slots":
            where = stores.pop(0)[1]
            assert isinstance(where, tuple)
            is_first = where[0] == slot // 32 if isinstance(slot, int) else False
            assert where[1] == (slice(2, None) if is_first else slice(None))
        part = [stores.pop(0) for _ in range(5)]
        assert [name for name, _, _ in part] == [
            "write_index", "fence", "header", "fence", "doorbell",
        ]  # fmt: skip
        assert part[2] == ("header", slot, HEADER)
        end = part[0][2]
        assert isinstance(end, int)
        assert part[4] == ("doorbell", 0, end - 1 & INDEX_MASK)


def test_many_submissions_in_flight() -> None:
    processor = Processor(64)
    for number in range(16):
        processor.ring.submit(packets(4 * number, 4))
    assert processor.ring.free == 0
    assert processor.waits == []
    assert processor.rung == [4 * number + 3 for number in range(16)]
    assert processor.take(1000) == 64
    assert processor.taken == list(range(64))


def test_a_full_ring_waits_for_room() -> None:
    processor = Processor(8)
    processor.ring.submit(packets(0, 8))
    processor.ring.submit(packets(8, 2))
    assert processor.waits == [2]
    assert processor.taken == [0, 1]
    processor.ring.submit(packets(10, 20))
    processor.take(100)
    assert processor.taken == list(range(30))


def test_an_error_while_waiting_leaves_the_ring_usable() -> None:
    processor = Processor(4)

    def fail(_index: int) -> None:
        raise TimeoutError

    ring = Ring(processor.ring._memory, wait_for=fail)
    ring.submit(packets(0, 3))
    with pytest.raises(TimeoutError):
        ring.submit(packets(3, 4))
    processor.take(4)
    ring.submit(packets(4, 3))
    processor.take(3)
    assert processor.taken == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("size", [0, 64 * 3, 64 * 4 + 1])
def test_a_ring_holds_a_power_of_two_of_packets(size: int) -> None:
    words = [memoryview(bytearray(8)) for _ in range(3)]
    with pytest.raises(ValueError, match="does not hold"):
        RingMemory.over(memoryview(bytearray(size)), *words)


def test_polling_gives_up_at_its_deadline() -> None:
    def read_index(value: int) -> Words:
        return memoryview(bytearray(struct.pack("=Q", value))).cast("Q")

    poll_for_space(read_index(5), 0.0)(5)
    poll_for_space(read_index(3), 0.0)(2**64 - 1)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"within 0\.02 seconds"):
        poll_for_space(read_index(5), 0.02)(6)
    assert time.monotonic() - start < 1
