"""A bounded run of the queue's stress test, and the mutations that it must catch."""

from __future__ import annotations

import pytest

from crossinfer.backends.cpu.queue import usable_cores
from crossinfer.testing.stress_queue import main, stress


@pytest.mark.parametrize("threads", [1, 2, usable_cores() + 3])
def test_random_packets_do_what_their_order_says(threads: int) -> None:
    result = stress(60_000, seed=threads, threads=threads)
    assert result.failure is None
    assert result.packets >= 60_000


def test_with_workers_that_never_sleep() -> None:
    assert stress(20_000, seed=7, threads=2, spin_ns=1_000_000_000).failure is None


def test_a_dropped_barrier_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutate", "drop-barrier", "--threads", "2"]) == 1
    assert "words are wrong" in capsys.readouterr().out


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_doorbell_that_is_one_too_far_is_caught(
    capsys: pytest.CaptureFixture[str], threads: str
) -> None:
    assert main(["--mutate", "doorbell", "--threads", threads]) == 1
    assert "is malformed (header 0x0001)" in capsys.readouterr().out


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--packets", "500", "--seed", "3"]) == 0
    assert "exactly" in capsys.readouterr().out
    for arguments in (["--packets", "0"], ["--mutate", "drop-barrier", "--threads", "1"]):
        with pytest.raises(SystemExit):
            main(arguments)
