"""Copies out of host memory beside the queue, on every device."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.conftest import MakeDevice

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse
from crossinfer.formats.blocks import BLOCK_FORMATS
from crossinfer.hal.buffer import Role, View
from crossinfer.hal.device import Device
from crossinfer.verify.data import Random, random_stored

SIZE = 3 << 20


def test_a_copy_fills_the_view_and_nothing_else(device: Device, rng: Random) -> None:
    data = rng.integers(0, 256, SIZE, dtype=np.uint8)
    target = device.upload(np.full(SIZE + 512, 7, np.uint8), (SIZE // 4 + 128,), DType.I32)
    memory = device.host_memory(SIZE)
    memory.data[:] = data
    device.copy_in(memory, target.view(256, SIZE)).wait()
    found = np.frombuffer(device.download(target), np.uint8)
    np.testing.assert_array_equal(found[256:-256], data)
    assert (found[:256] == 7).all()
    assert (found[-256:] == 7).all()
    assert device.memory_in_use == target.size_in_bytes


def test_a_copy_is_repeated_with_what_the_host_wrote_since(device: Device) -> None:
    slots = [device.alloc((SIZE // 4,), DType.I32) for _ in range(2)]
    sources = [device.host_memory(SIZE) for _ in range(3)]
    for turn in range(6):
        source, slot = sources[turn % 3], slots[turn % 2]
        source.data[:] = turn
        device.copy_in(source, slot.view()).wait()
        assert device.download(slot.view(0, 1024)) == bytes([turn]) * 1024
    sources[0].free()
    with pytest.raises(InvalidUse, match="was freed"):
        device.copy_in(sources[0], slots[0].view())


def test_weights_packed_on_the_host_are_those_of_an_upload(device: Device, rng: Random) -> None:
    shape = (48, 512)
    for storage in (DType.F16, DType.BF16, *BLOCK_FORMATS):
        rows = random_stored(rng, storage, shape)
        size = device.packed_size(shape, storage, Role.WEIGHT)
        memory = device.host_memory(size)
        device.pack(rows, shape, storage, Role.WEIGHT, memory.data)
        found = device.alloc(shape, storage, Role.WEIGHT)
        device.copy_in(memory, View(found, 0, size)).wait()
        expected = device.upload(rows, shape, storage, Role.WEIGHT)
        same = device.download(View(found, 0, size)) == device.download(View(expected, 0, size))
        assert same, storage.label


def test_misuse(make_device: MakeDevice) -> None:
    with make_device() as device, make_device() as other:
        memory, target = device.host_memory(1024), device.alloc((128,), DType.I32)
        with pytest.raises(InvalidUse, match="1280 bytes were to be copied"):
            device.copy_in(memory, device.alloc((320,), DType.I32).view())
        with pytest.raises(InvalidUse, match="belongs to device"):
            other.copy_in(memory, target.view())
        with pytest.raises(InvalidUse, match="belongs to device"):
            other.copy_in(other.host_memory(1024), target.view())
