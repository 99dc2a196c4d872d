"""Signals lie in memory as `amd_signal_t` does."""

from __future__ import annotations

import struct

from crossinfer.aql.signals import SIGNAL_BYTES, Signals


def test_layout() -> None:
    memory = bytearray(b"\xff" * 3 * SIGNAL_BYTES)
    signals = Signals(memoryview(memory), 0x1000)
    assert len(signals) == 3
    assert signals.address(2) == 0x1080
    signals.reset(1, -2)
    expected = struct.pack("<qq6Q", 1, -2, 0, 0, 0, 0, 0, 0)
    assert memory == b"\xff" * 64 + expected + b"\xff" * 64


def test_values_and_times() -> None:
    memory = bytearray(2 * SIGNAL_BYTES)
    signals = Signals(memoryview(memory), 0)
    signals.reset(1, 1)
    assert signals.value(1) == 1
    assert signals.times(1) == (0, 0)
    struct.pack_into("<q", memory, 64 + 8, -5)
    struct.pack_into("<QQ", memory, 64 + 32, 7, 2**64 - 1)
    assert signals.value(1) == -5
    assert signals.times(1) == (7, 2**64 - 1)
    signals.store(1, 9)
    assert signals.value(1) == 9
    assert signals.value(0) == 0
