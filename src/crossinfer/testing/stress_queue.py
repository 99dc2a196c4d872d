"""python -m crossinfer.testing.stress_queue: random packets through the CPU's queue, checked.

Several submissions are in flight at once in a small ring, which wraps around and runs full. Memory
must be exactly what the packets make of it in their order. With `--mutate` the submitter breaks
the protocol, and the run is expected to fail: exit status 1, and a line that says what was seen.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import secrets
import sys
import time

import numpy as np

from crossinfer.aql.ring import INDEX_MASK, RingMemory, Words
from crossinfer.backends.cpu.queue import NativeQueue, usable_cores
from crossinfer.backends.cpu.signal_pool import SignalPool
from crossinfer.jit.object_cache import load_cached
from crossinfer.jit.target import host_target
from crossinfer.testing.stress_program import SIGNALS, Program, Submission, mix_text

MUTATIONS = ("none", "drop-barrier", "doorbell")

_RING_PACKETS = 256
_IN_FLIGHT = 4
_ROUND = 32
"""Submissions between two comparisons; many, so that all workers are awake for most of them."""
_MOST_DISPATCHES = 700
_SECONDS = 60.0
_BARRIER_BIT_BYTE = 1  # the barrier bit is the lowest of a packet's second byte


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run did; `failure` says what was wrong, if something was."""

    packets: int
    submissions: int
    seconds: float
    failure: str | None


class _OneTooFar:
    """A doorbell that is given the write index instead of the write index - 1."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def __getitem__(self, index: int, /) -> int:
        return self._words[index]

    def __setitem__(self, index: int, value: int, /) -> None:
        self._words[index] = value + 1 & INDEX_MASK


def stress(
    packets: int, seed: int, threads: int, mutation: str = "none", spin_ns: int | None = None
) -> Result:
    """Submits at least this many packets, unless something goes wrong before."""

    def view(memory: RingMemory) -> RingMemory:
        if mutation != "doorbell":
            return memory
        return dataclasses.replace(memory, doorbell=_OneTooFar(memory.doorbell))

    target = host_target()
    code = load_cached(mix_text(target), target, ["stress_mix"])
    pool = SignalPool()
    program = Program(code.address("stress_mix"), pool, seed)
    random = np.random.default_rng([seed, 1])
    queue = NativeQueue(
        threads, packets=_RING_PACKETS, deadline_s=_SECONDS, view=view, spin_ns=spin_ns
    )
    start = time.monotonic()
    done = submissions = 0
    failure: str | None = None
    try:
        while failure is None and done < packets:
            # The model is where these submissions lead, so memory is compared behind them.
            round_ = [_next(program, random) for _ in range(_ROUND)]
            for submission in round_:
                if mutation == "drop-barrier":
                    _drop_barriers(submission, random)
            failure = _run(queue, round_) or program.differences()
            done += sum(len(submission.packets) for submission in round_)
            submissions += len(round_)
    finally:
        queue.stop()
    return Result(done, submissions, time.monotonic() - start, failure)


def _next(program: Program, random: np.random.Generator) -> Submission:
    """Mostly short ones; some are longer than the ring."""
    most = _MOST_DISPATCHES if random.random() < 0.2 else _RING_PACKETS // 2
    return program.submission(int(random.integers(1, most)))


def _run(queue: NativeQueue, submissions: list[Submission]) -> str | None:
    """Submits all, with a few in flight at once. What went wrong, if something did."""
    in_flight: collections.deque[Submission] = collections.deque()
    for submission in [*submissions, None]:
        while in_flight and (submission is None or len(in_flight) == _IN_FLIGHT):
            oldest = in_flight.popleft()
            if not queue.wait(oldest.owned.signals, SIGNALS - 1, _SECONDS):
                return queue.error or f"a submission has not completed within {_SECONDS:g} seconds"
            if wrong := oldest.check_signals():
                return wrong
        if submission is not None:
            try:
                queue.submit(submission.packets)
            except TimeoutError as error:
                return str(error)
            in_flight.append(submission)
    return queue.error


def _drop_barriers(submission: Submission, random: np.random.Generator) -> None:
    """Clears half of the barrier bits that matter."""
    for packet in submission.needed_barriers:
        if random.random() < 0.5:
            submission.packets[packet, _BARRIER_BIT_BYTE] &= 0xFE


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="stress_queue", description=__doc__.split("\n")[0])
    parser.add_argument("--packets", type=_count, default=1_000_000)
    parser.add_argument("--seed", type=int, help="repeats a run")
    parser.add_argument("--threads", type=_count, default=max(2, usable_cores()))
    parser.add_argument("--mutate", choices=MUTATIONS, default="none")
    options = parser.parse_args(arguments)
    if options.mutate == "drop-barrier" and options.threads < 2:
        parser.error("without barriers one thread still works in order; use --threads 2")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"--seed {seed} --threads {options.threads} --mutate {options.mutate}", flush=True)
    result = stress(options.packets, seed, options.threads, options.mutate)
    print(
        f"{result.packets} packets in {result.submissions} submissions, {result.seconds:.1f} s "
        "with the model"
    )
    if result.failure is not None:
        print(f"wrong: {result.failure}")
        return 1
    print("memory is exactly what the packets make of it in their order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
