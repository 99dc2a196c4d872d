"""Random packet streams whose result is known: what `stress_queue` submits.

Memory is a number of regions of 64-bit words. A kernel reads one region and changes another:

    word = read · factor + word · 3 + chain(term, delay)

in wrapping arithmetic, so that the order of any two packets on one region shows. The words that are
read go backwards, workgroups start at a random one, and `chain` takes longer for a larger delay, so
that two packets that overlap by mistake hardly ever give the right result by luck. Packets that
must not overlap are kept apart at random by a barrier bit, or by a barrier-AND packet on the
completion signals of the packets that are in the way.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import string

import numpy as np

from crossinfer.aql.packets import (
    BARRIER_AND,
    BARRIER_BIT,
    KERNEL_DISPATCH,
    MAX_DEPENDENCIES,
    PACKET_BYTES,
    PacketType,
    encode_header,
)
from crossinfer.backends.cpu.kernel import CONSTANTS_OFFSET
from crossinfer.backends.cpu.memory import address_of, allocate_zeroed
from crossinfer.backends.cpu.processor import platform_text
from crossinfer.backends.cpu.signal_pool import OwnedSignals, SignalPool
from crossinfer.core.dtypes import Array
from crossinfer.jit.target import Target

REGIONS = 24
GROUP_WORDS = 4
MAX_GROUPS = 12
SIGNALS = 32
"""Completion signals of a submission; the last one is the submission's own."""

_LONGEST_DELAY = 400
_SLEEPERS = 0.003
"""The share of dispatches that sleep, which lets others overtake them whatever the machine does."""
_SLEEP_NS = 20_000
_CHAIN = (6364136223846793005, 1442695040888963407)
_KERNARG_BYTES = 128
_DISPATCH = PacketType.KERNEL_DISPATCH
_OPEN_SIGNALS = 6
"""Signals that packets are given at any time; a few, so that several packets share one."""
_WORD = 1 << 64


def mix_text(target: Target) -> str:
    """The kernel's module; its symbol is `stress_mix`."""
    text = (importlib.resources.files(__package__) / "stress_mix.ll").read_text()
    names = {
        "group_words": GROUP_WORDS,
        "constants_offset": CONSTANTS_OFFSET,
        "chain_factor": _CHAIN[0],
        "chain_term": _CHAIN[1],
    }
    return string.Template(text).substitute(names) + platform_text(target)


def _chain_tables() -> tuple[Array, Array]:
    """chain(term, d) = factors[d] · term + terms[d]."""
    factors, terms = [1], [0]
    for _ in range(_LONGEST_DELAY):
        factors.append(factors[-1] * _CHAIN[0] % _WORD)
        terms.append((terms[-1] * _CHAIN[0] + _CHAIN[1]) % _WORD)
    return np.array(factors, dtype=np.uint64), np.array(terms, dtype=np.uint64)


_FACTORS, _TERMS = _chain_tables()


@dataclasses.dataclass
class Submission:
    """Encoded packets; what they refer to stays in memory as long as this does."""

    packets: Array
    kernargs: Array
    owned: OwnedSignals
    needed_barriers: list[int]
    """Packets whose barrier bit keeps them from something that they conflict with."""

    def check_signals(self) -> str | None:
        """What is wrong with the signals after completion, if something is."""
        signals = self.owned.signals
        values = [signals.value(index) for index in range(SIGNALS)]
        if any(values):
            return f"the completion signals hold {values} instead of zeros"
        times = [signals.times(index) for index in range(SIGNALS)]
        if any(start > end for start, end in times):
            return f"a packet ended before it started: {times}"
        return None


class Program:
    """Makes submissions, and does in order what they do, on memory of its own."""

    def __init__(self, kernel: int, pool: SignalPool, seed: int) -> None:
        self._kernel = kernel
        self._pool = pool
        self._random = np.random.default_rng(seed)
        words = MAX_GROUPS * GROUP_WORDS
        self._memory = allocate_zeroed(REGIONS * words * 8).view(np.uint64)
        self._memory[:] = self._random.integers(0, _WORD, self._memory.size, dtype=np.uint64)
        self._model = self._memory.copy().reshape(REGIONS, words)

    def differences(self) -> str | None:
        """Where memory is not what the packets in their order make of it."""
        found = self._memory.reshape(self._model.shape)
        wrong = np.argwhere(found != self._model)
        if not len(wrong):
            return None
        region, word = wrong[0]
        return (
            f"{len(wrong)} words are wrong, first word {word} of region {region}: "
            f"{found[region, word]:#x} instead of {self._model[region, word]:#x}"
        )

    def submission(self, dispatches: int) -> Submission:
        """The next packets, already done on the model. Their signals are armed."""
        random = self._random
        read = random.integers(0, REGIONS, dispatches)
        changed = (read + random.integers(1, REGIONS, dispatches)) % REGIONS
        groups = random.integers(1, MAX_GROUPS + 1, dispatches)
        numbers = random.integers(0, _WORD, (2, dispatches), dtype=np.uint64)
        delays = np.where(
            random.random(dispatches) < 0.1,
            random.integers(0, _LONGEST_DELAY + 1, dispatches),
            random.integers(0, 100, dispatches),
        )
        kernargs = self._kernargs(read, changed, numbers, delays, groups)
        terms = _FACTORS[delays] * numbers[1] + _TERMS[delays]
        self._run(read, changed, groups, numbers[0], terms)

        order = _Order(random)
        for number in range(dispatches):
            order.add(number, int(read[number]), int(changed[number]))
        owned = self._pool.take(SIGNALS, initial=0)
        order.finish()
        packets = order.encode(owned, self._kernel, address_of(kernargs), groups)
        for index, count in enumerate(order.users):
            owned.signals.store(index, count)
        return Submission(packets, kernargs, owned, order.needed_barriers)

    def _kernargs(
        self, read: Array, changed: Array, numbers: Array, delays: Array, groups: Array
    ) -> Array:
        blocks = allocate_zeroed(len(read) * _KERNARG_BYTES).view(np.uint64)
        rows = blocks.reshape(len(read), -1)
        region_bytes = self._model[0].nbytes
        rows[:, 0] = address_of(self._memory) + read * region_bytes
        rows[:, 1] = address_of(self._memory) + changed * region_bytes
        first = self._random.integers(0, MAX_GROUPS, len(read))
        sleeps = np.where(self._random.random(len(read)) < _SLEEPERS, _SLEEP_NS, 0)
        columns = (*numbers, delays, groups, first, sleeps)
        for place, column in enumerate(columns, CONSTANTS_OFFSET // 8):
            rows[:, place] = column
        return blocks.view(np.uint8)

    def _run(self, read: Array, changed: Array, groups: Array, factor: Array, term: Array) -> None:
        three = np.uint64(3)
        columns = zip(read.tolist(), changed.tolist(), (groups * GROUP_WORDS).tolist(), strict=True)
        for number, (source, target, words) in enumerate(columns):
            row = self._model[target, :words]
            row *= three
            row += self._model[source, :words][::-1] * factor[number]
            row += term[number]


@dataclasses.dataclass(frozen=True)
class _Row:
    """A packet: dispatch `number`, or a barrier-AND packet without one. Signals by index."""

    number: int = -1
    barrier: bool = False
    signal: int = -1
    dependencies: tuple[int, ...] = ()


class _Order:
    """Decides barriers, signals and barrier-AND packets, packet by packet.

    A signal that somebody waits for takes no further packets.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._open = list(range(_OPEN_SIGNALS))
        self._unused = list(range(_OPEN_SIGNALS, SIGNALS - 1))
        self._rows: list[_Row] = []
        # What may be running, by region: (packet writes it, its signal or -1).
        self._running: list[list[tuple[bool, int]]] = [[] for _ in range(REGIONS)]
        self.users = [0] * SIGNALS
        self.needed_barriers: list[int] = []

    def add(self, number: int, read: int, changed: int) -> None:
        blockers = [signal for writes, signal in self._running[read] if writes]
        blockers += [signal for _, signal in self._running[changed]]
        dice = self._random.random(3)
        barrier = bool(dice[0] < 0.02)
        if blockers and not barrier:
            signals = set(blockers)
            if -1 in signals or len(signals) > MAX_DEPENDENCIES or dice[1] < 0.3:
                barrier = True
                self.needed_barriers.append(len(self._rows))
            else:
                self._wait_for(signals)
        if barrier:
            self._drained()
        signal = -1
        if dice[2] < 0.7 and self._open:
            signal = int(self._random.choice(self._open))
            self.users[signal] += 1
        self._running[read].append((False, signal))
        self._running[changed].append((True, signal))
        self._rows.append(_Row(number, barrier, signal))

    def finish(self) -> None:
        """The last packet drains the queue and completes the submission's own signal."""
        self._rows.append(_Row(barrier=True, signal=SIGNALS - 1))
        self.users[SIGNALS - 1] = 1

    def encode(self, owned: OwnedSignals, kernel: int, kernargs: int, groups: Array) -> Array:
        packets = np.zeros((len(self._rows), PACKET_BYTES), dtype=np.uint8)
        dispatch = packets.reshape(-1).view(KERNEL_DISPATCH)
        barrier_and = packets.reshape(-1).view(BARRIER_AND)
        numbers = np.array([row.number for row in self._rows])
        runs = numbers >= 0
        bits = np.array([row.barrier for row in self._rows], dtype=np.uint16) << BARRIER_BIT
        headers = [encode_header(kind) for kind in (PacketType.BARRIER_AND, _DISPATCH)]
        addresses = np.array([*map(owned.signals.address, range(SIGNALS)), 0], dtype=np.uint64)
        dispatch["header"] = np.array(headers, dtype=np.uint16)[runs.astype(int)] | bits
        dispatch["completion_signal"] = addresses[[row.signal for row in self._rows]]
        for place, row in enumerate(self._rows):
            for number, signal in enumerate(row.dependencies):
                barrier_and["dependencies"][place, number] = addresses[signal]
        dispatch["setup"][runs] = 1
        dispatch["workgroup_size"][runs] = 1
        dispatch["grid_size"][runs] = 1
        dispatch["grid_size"][runs, 0] = groups
        dispatch["kernel_object"][runs] = kernel
        dispatch["kernarg_address"][runs] = kernargs + numbers[runs] * _KERNARG_BYTES
        return packets

    def _wait_for(self, signals: set[int]) -> None:
        """A barrier-AND packet; what counts these signals down has finished behind it."""
        self._rows.append(_Row(dependencies=tuple(sorted(signals))))
        for signal in signals & set(self._open):
            self._open.remove(signal)
            if self._unused:
                self._open.append(self._unused.pop())
        for entries in self._running:
            entries[:] = [entry for entry in entries if entry[1] not in signals]

    def _drained(self) -> None:
        for entries in self._running:
            entries.clear()
