"""Weights packed by the queue's workers: the same bytes as by one call, checked, interruptible."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossinfer.backends.cpu import weight_loader
from crossinfer.backends.cpu.device import CpuDevice
from crossinfer.backends.cpu.encode import memory_of
from crossinfer.backends.cpu.kernels import narrow_layout
from crossinfer.backends.cpu.kernels.layout import has_records, records_bytes
from crossinfer.backends.cpu.kernels.packing import pack, unpack_scalars
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import DeviceLost, FormatError, InvalidUse
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.formats.finite import first_not_finite
from crossinfer.formats.table_formats import Q8_32
from crossinfer.formats.tensors import map_file
from crossinfer.hal.buffer import Buffer, Role, View
from crossinfer.hal.loading import LoadingStoppedError
from crossinfer.verify.data import random_stored

SCALARS = (DType.F32, DType.F16, DType.BF16)
STORAGES = pytest.mark.parametrize(
    "storage", [*BLOCK_FORMATS, Q8_32, *SCALARS], ids=lambda storage: storage.label
)


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice(threads=3) as device:
        yield device


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows in a piece, few pieces in a batch."""
    monkeypatch.setattr(weight_loader, "_PIECE_BYTES", 40_000)
    monkeypatch.setattr(narrow_layout, "_GROUP_BYTES", 20_000)
    monkeypatch.setattr(weight_loader, "_LEAST_BATCH", 30_000)
    monkeypatch.setattr(weight_loader, "_MOST_BATCH", 120_000)


def no_check() -> None:
    """For tensors whose numbers are good."""


def is_packed(buffer: Buffer, stored: Array, shape: tuple[int, int], storage: StorageType) -> bool:
    expected = np.concatenate(list(pack(stored, shape, storage)))
    made = memory_of(buffer)[: expected.size]
    if has_records(storage):  # and gaps, in which there is anything
        records = slice(-records_bytes(shape[0], storage), None)
        unpacked = unpack_scalars(made, shape, storage)
        same_tiles = made[records].tobytes() == expected[records].tobytes()
        return same_tiles and unpacked.tobytes() == stored.tobytes()
    return np.array_equal(made, expected)


@STORAGES
@pytest.mark.usefixtures("small_steps")
def test_it_packs_as_one_call_does(device: CpuDevice, storage: StorageType) -> None:
    rng = np.random.default_rng()
    tensors = []
    with device.loader() as loader:
        for rows in (1, 15, 16, 17, 200, 333):
            columns = int(rng.integers(1, 4)) * max(storage.block_elements, 24)
            shape = rows, columns
            stored = random_stored(rng, storage, shape)
            buffer = loader.add(stored, shape, storage, Role.WEIGHT, "w", no_check)
            memory_of(buffer)  # where it will be
            tensors.append((buffer, stored, shape))
    assert all(is_packed(*tensor, storage) for tensor in tensors)


@pytest.mark.usefixtures("small_steps")
def test_a_mapped_file_is_packed_whole(device: CpuDevice, tmp_path: Path) -> None:
    """Of tensors in any order, one of them not aligned to anything; its pages come back."""
    rng = np.random.default_rng()
    shape = 512, 256
    stored = [random_stored(rng, DType.F16, shape) for _ in range(5)]
    path = tmp_path / "weights"
    path.write_bytes(b"12345" + b"".join(part.tobytes() for part in stored))
    mapped, size = map_file(path), stored[0].nbytes
    with device.loader() as loader:
        buffers = {
            number: loader.add(
                mapped[5 + number * size : 5 + (number + 1) * size],
                shape,
                DType.F16,
                Role.WEIGHT,
                "w",
                no_check,
            )
            for number in (3, 0, 1, 4, 2)
        }
    assert all(is_packed(buffers[n], stored[n], shape, DType.F16) for n in range(5))
    assert bytes(mapped[5:]) == b"".join(part.tobytes() for part in stored)


def test_other_tensors_are_copied_and_checked(device: CpuDevice) -> None:
    checked: list[int] = []
    values = np.arange(10, dtype=np.float32)
    with device.loader() as loader:
        buffer = loader.add(values, (10,), DType.F32, Role.PLAIN, "norm", lambda: checked.append(1))
    assert device.download(buffer)[:40] == values.tobytes()
    assert checked == [1]


def numbers_that_decide(stored: Array, storage: StorageType) -> list[tuple[int, bytes]]:
    """Places in a tensor's bytes and what makes the number there infinite or NaN."""
    raw = stored.reshape(-1).view(np.uint8)
    if isinstance(storage, DType):
        bad = {DType.F32: b"\0\0\x80\x7f", DType.F16: b"\x01\xfc", DType.BF16: b"\x80\xff"}
        size = storage.block_bytes
        places = [
            0,
            raw.size - size,
            size * int(np.random.default_rng().integers(raw.size // size)),
        ]
        return [(place, bad[storage]) for place in places]
    offsets = [storage.scale_offset]
    if storage.min_offset is not None:
        offsets.append(storage.min_offset)
    last = raw.size - storage.block_bytes
    return [(at + offset, b"\0\x7c") for at in (0, last) for offset in offsets]


@STORAGES
def test_numbers_that_are_not_finite_are_found(device: CpuDevice, storage: StorageType) -> None:
    shape = 37, 3 * max(storage.block_elements, 11)  # a last tile and columns that are not whole
    good = random_stored(np.random.default_rng(), storage, shape)
    for place, bad in numbers_that_decide(good, storage):
        raw = good.copy().reshape(-1).view(np.uint8)
        raw[place : place + len(bad)] = np.frombuffer(bad, dtype=np.uint8)
        assert first_not_finite(raw, storage) is not None

        def check() -> None:
            raise FormatError("the second tensor")

        loader = device.loader()
        loader.add(good, shape, storage, Role.WEIGHT, "first", no_check)
        loader.add(raw, shape, storage, Role.WEIGHT, "second", check)
        loader.add(good, shape, storage, Role.WEIGHT, "third", no_check)
        with pytest.raises(FormatError, match="the second tensor"):
            loader.finish()
        loader.abandon()
        with pytest.raises(InvalidUse, match="second holds NaN"), device.loader() as loader:
            loader.add(raw, shape, storage, Role.WEIGHT, "second", no_check)
    largest = np.full(shape, np.finfo(np.float16).max, dtype=np.float16)
    with device.loader() as loader:
        loader.add(largest, shape, DType.F16, Role.WEIGHT, "largest", no_check)


def test_misuse_is_told_before_anything_runs(device: CpuDevice) -> None:
    used = device.memory_in_use
    with device.loader() as loader, pytest.raises(InvalidUse, match="takes 64 bytes"):
        loader.add(b"123", (4, 8), DType.F16, Role.WEIGHT, "w", no_check)
    assert device.memory_in_use == used
    device.close()
    with pytest.raises(InvalidUse, match="closed"):
        device.loader()


@pytest.mark.usefixtures("small_steps")
def test_an_interrupt_leaves_the_device_in_order(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = 2000, 256
    stored = random_stored(np.random.default_rng(), DType.F16, shape)
    wait, interrupts = device._queue.wait, [True]

    def interrupted_once(*arguments: Any) -> bool:
        if interrupts.pop() if interrupts else False:
            raise KeyboardInterrupt
        return wait(*arguments)

    monkeypatch.setattr(device._queue, "wait", interrupted_once)
    used = device.memory_in_use
    with pytest.raises(KeyboardInterrupt), device.loader() as loader:
        loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
    assert not interrupts
    assert device.lost is None
    assert device.memory_in_use == used
    with device.loader() as loader:
        buffer = loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
    assert is_packed(buffer, stored, shape, DType.F16)


@pytest.mark.usefixtures("small_steps")
def test_an_interrupt_between_batches_waits_for_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is prepared and not yet submitted never ends."""
    shape = 2000, 256
    stored = random_stored(np.random.default_rng(), DType.F16, shape)
    prepared: list[int] = []

    def interrupted_at_the_second(*_: object) -> None:
        prepared.append(1)
        if len(prepared) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(weight_loader, "prefetch_pages", interrupted_at_the_second)
    with CpuDevice(threads=3, deadline_s=10) as device:
        loader = device.loader()
        with pytest.raises(KeyboardInterrupt), loader:
            loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
        assert device.lost is None
        assert device.memory_in_use == 0


@pytest.mark.usefixtures("small_steps")
def test_who_does_not_wait_at_all_loses_the_device(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers may be at memory that nobody else holds any more: it is kept until they end."""
    shape = 2000, 256
    stored = random_stored(np.random.default_rng(), DType.F16, shape)

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(device._queue, "wait", interrupted)
    loader = device.loader()
    with pytest.raises(KeyboardInterrupt), loader:
        loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
    assert device._kept
    assert device._kept[0] is loader
    with pytest.raises(DeviceLost, match="loading was cut short"):
        device.loader()


@pytest.mark.usefixtures("small_steps")
def test_one_that_is_stopped_begins_nothing(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = 2000, 256
    stored = random_stored(np.random.default_rng(), DType.F16, shape)
    submit, submitted = device._queue.submit, [0]

    def counted(packets: Array) -> None:
        submitted[0] += 1
        if submitted[0] == 2:
            loader.stop()
        submit(packets)

    monkeypatch.setattr(device._queue, "submit", counted)
    loader = device.loader()
    with pytest.raises(LoadingStoppedError), loader:
        loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
    assert submitted == [2]
    assert device.memory_in_use == 0
    with pytest.raises(LoadingStoppedError):
        loader.add(stored[:, 0].copy(), shape[:1], DType.F16, Role.PLAIN, "bias", no_check)
    assert device.memory_in_use == 0
    assert device.lost is None


@pytest.mark.usefixtures("small_steps")
def test_threads_load_at_the_same_time(device: CpuDevice) -> None:
    shape = 700, 256
    stored = random_stored(np.random.default_rng(), DType.F16, shape)
    good: list[bool] = []

    def work() -> None:
        for _ in range(5):
            with device.loader() as loader:
                buffer = loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check)
            good.append(is_packed(buffer, stored, shape, DType.F16))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 20


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("closes", [False, True])
def test_freed_weights_take_no_memory(closes: bool) -> None:
    """Not even the end of their last mapping, although the device is still there."""

    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    shape = 5000, 1024  # 10 MB
    stored = np.ones(shape, dtype=np.float16)
    with CpuDevice(threads=1) as device:
        before = resident()
        with device.loader() as loader:
            buffers = [
                loader.add(stored, shape, DType.F16, Role.WEIGHT, "w", no_check) for _ in range(3)
            ]
        assert resident() > before + 25_000
        if closes:
            device.close()
        else:
            for buffer in buffers:
                buffer.free()
        assert resident() < before + 5_000


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_a_cache_takes_memory_for_what_is_written() -> None:
    """Not a large page for the first block of each layer."""

    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    shape = 257, 2, 3, 16, 64  # 3 MB
    with CpuDevice(threads=1) as device:
        before = resident()
        caches = [device.alloc(shape, DType.F16, Role.KV_CACHE) for _ in range(20)]
        for cache in caches:
            device.write(cache.view(), b"\1" * 20_000)
        assert resident() < before + 20 * 200
        assert device.download(View(caches[3], 19_999, 2)) == b"\1\0"
