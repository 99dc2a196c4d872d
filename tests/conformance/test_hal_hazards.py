"""Commands that depend on each other run in order, on any device."""

from __future__ import annotations

import pytest
from tests.conformance.programs import TOLERANCE, random_program

from crossinfer.hal.device import Device
from crossinfer.verify.data import Random


@pytest.mark.parametrize("length", [2, 5, 20, 60])
def test_programs_compute_what_their_order_says(
    shared_device: Device, rng: Random, length: int
) -> None:
    for _ in range(10):
        program = random_program(shared_device, rng, length)
        assert program.run() < TOLERANCE
        program.free()


def test_replays_follow_each_other(shared_device: Device, rng: Random) -> None:
    program = random_program(shared_device, rng)
    for _ in range(10):
        assert program.run() < TOLERANCE
    program.free()
