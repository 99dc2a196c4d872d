"""Buffers, timers, replay and life cycle of any device."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import numpy as np
import pytest
from tests.conformance.conftest import MakeDevice
from tests.conformance.programs import TOLERANCE, random_program

from crossinfer.core.dtypes import DType, decode_scalars, encode_scalars
from crossinfer.core.errors import DeviceLost, InvalidUse, OutOfDeviceMemory
from crossinfer.formats.blocks import BLOCK_FORMATS, StorageType
from crossinfer.graph.op import float32
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal import hooks
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Dispatch, Operand
from crossinfer.verify.data import Random, random_stored, random_values

CACHE_SHAPE = (5, 2, 3, 16, 8)


def matrix_product(device: Device, rng: Random, size: int = 64) -> tuple[Dispatch, ...]:
    """A product of two random matrices [size, size], over buffers of its own."""
    weight = Operand((size, size), DType.F32, Role.WEIGHT)
    operands = {"x": float32(size, size), "weight": weight, "output": float32(size, size)}
    views = {
        name: device.upload(
            random_values(rng, size, size), operand.shape, operand.storage, operand.role
        ).view()
        for name, operand in operands.items()
    }
    lowering = device.lower(Linear(), operands)[0]
    scratch = {
        name: device.alloc((bytes_,), DType.F32).view() for name, bytes_ in lowering.scratch.items()
    }
    return lowering.bind(views | scratch)


@pytest.mark.parametrize("size", [1, 3, 64, 65, 1021, 100_003])
@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.label)
def test_buffer_roundtrip(device: Device, rng: Random, dtype: DType, size: int) -> None:
    data = rng.integers(0, 256, size * dtype.block_bytes, dtype=np.uint8).tobytes()
    buffer = device.upload(data, (size,), dtype)
    assert buffer.size_in_bytes >= len(data)
    assert buffer.size_in_bytes % 256 == 0
    assert device.download(buffer)[: len(data)] == data


@pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda storage: storage.label)
def test_plain_blocks_are_kept_as_they_are(
    device: Device, rng: Random, storage: StorageType
) -> None:
    data = random_stored(rng, storage, (3, 512))
    buffer = device.upload(data, (3, 512), storage)
    assert device.download(buffer)[: data.nbytes] == data.tobytes()


@pytest.mark.parametrize("chunk", [4096, hooks.UPLOAD_CHUNK_BYTES])
def test_uploads_in_chunks(
    device: Device, rng: Random, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(hooks, "UPLOAD_CHUNK_BYTES", chunk)
    data = rng.integers(0, 2**31, 5 * chunk // 8 + 3, dtype=np.int32)
    reports: list[tuple[str, int, int]] = []
    buffer = device.upload(
        data,
        data.shape,
        DType.I32,
        label="table",
        progress=lambda task, done, total: reports.append((task, done, total)),
    )
    assert device.download(buffer)[: data.nbytes] == data.tobytes()
    assert [task for task, _, _ in reports] == ["table"] * len(reports)
    assert len(reports) > 2
    done = [done for _, done, _ in reports]
    assert done == sorted(done)
    assert reports[-1][1:] == (data.nbytes, data.nbytes)


def test_views_are_parts_of_their_buffer(device: Device, rng: Random) -> None:
    image = bytearray(rng.bytes(1024))
    buffer = device.upload(bytes(image), (1024 // 4,), DType.I32)
    assert device.download(buffer.view(256, 300)) == image[256:556]
    device.write(buffer.view(512, 256), b"abc")
    image[512:515] = b"abc"
    assert device.download(buffer) == image
    device.write(buffer.view(768), b"")
    assert device.download(buffer.view(768)) == image[768:]


def test_a_write_waits_for_what_was_submitted_before(device: Device, rng: Random) -> None:
    size = 1 << 16
    old, new = rng.bytes(size), rng.bytes(size)
    source = device.upload(old, (size // 4,), DType.I32)
    copies = [device.alloc((size // 4,), DType.I32) for _ in range(20)]
    recorder = device.recorder()
    for copy in copies:
        recorder.copy_region(source.view(), copy.view())
    recording = recorder.finish()
    for _ in range(5):
        device.submit(recording)
        device.write(source.view(), new)
        assert all(device.download(copy) == old for copy in copies)
        device.write(source.view(), old)


def test_gpu_timer_reports_nonnegative(device: Device, rng: Random) -> None:
    timer = device.timer(8)
    product = matrix_product(device, rng)
    recorder = device.recorder()
    for index in range(0, 6, 2):
        recorder.timestamp(timer, index)
        for dispatch in product:
            recorder.dispatch(dispatch)
        recorder.timestamp(timer, index + 1)
    recording = recorder.finish()
    assert timer.read() == [None] * 8
    device.submit(recording).wait()
    times = [time for time in timer.read()[:6] if time is not None]
    assert times == sorted(times)
    for index in range(0, 6, 2):
        assert timer.elapsed(index, index + 1) > 0
    assert timer.elapsed(0, 5) >= timer.elapsed(0, 1) + timer.elapsed(2, 3) + timer.elapsed(4, 5)
    assert timer.read()[6:] == [None, None]
    device.submit(recording).wait()
    assert timer.read()[0] != times[0]


def test_replay_sees_new_contents_and_new_parameters(device: Device, rng: Random) -> None:
    parameters = device.alloc((64,), DType.I32)
    source, first, second = (device.alloc((64,), DType.I32) for _ in range(3))
    recorder = device.recorder(parameters)
    recorder.copy_region(parameters.view(), first.view())
    recorder.copy_region(source.view(), second.view())
    recording = recorder.finish()
    commands = recording.commands
    held = bytearray(256)
    for size in (256, 256, 100, 0):
        params, contents = rng.bytes(size), rng.bytes(256)
        held[:size] = params
        device.write(source.view(), contents)
        device.submit(recording, params).wait()
        assert device.download(first) == held
        assert device.download(second) == contents
    assert recording.commands is commands


def test_submissions_run_in_order_with_their_own_parameters(device: Device, rng: Random) -> None:
    parameters = device.alloc((64,), DType.I32)
    targets = [device.alloc((64,), DType.I32) for _ in range(16)]
    expected = [rng.bytes(256) for _ in targets]
    for target, params in zip(targets, expected, strict=True):
        recorder = device.recorder(parameters)
        recorder.copy_region(parameters.view(), target.view())
        device.submit(recorder.finish(), params)
    assert [device.download(target) for target in targets] == expected


def test_an_empty_recording_runs(any_device: Device) -> None:
    recording = any_device.recorder().finish()
    for _ in range(2):
        fence = any_device.submit(recording)
        fence.wait()
        assert fence.done


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32], ids=lambda dtype: dtype.label)
def test_kv_blocks_go_out_and_in_in_canonical_order(
    device: Device, rng: Random, dtype: DType
) -> None:
    values = random_values(rng, *CACHE_SHAPE)
    stored = encode_scalars(values, dtype)
    cache = device.upload(stored, CACHE_SHAPE, dtype, Role.KV_CACHE)
    rounded = decode_scalars(stored, dtype).reshape(CACHE_SHAPE)
    for block in range(CACHE_SHAPE[0]):
        found = device.export_kv_block(cache, CACHE_SHAPE, dtype, block)
        np.testing.assert_array_equal(found, rounded[block])
    device.import_kv_block(cache, CACHE_SHAPE, dtype, 3, values[1])
    for block, source in enumerate((0, 1, 2, 1, 4)):
        found = device.export_kv_block(cache, CACHE_SHAPE, dtype, block)
        np.testing.assert_array_equal(found, rounded[source])


def test_memory_is_counted(any_device: Device) -> None:
    assert any_device.memory_in_use == 0
    buffers = [any_device.alloc((size,), DType.F32) for size in (1, 64, 65)]
    assert [b.size_in_bytes for b in buffers] == [256, 256, 512]
    assert any_device.memory_in_use == 1024
    buffers[1].free()
    assert any_device.memory_in_use == 768


def test_out_of_memory_tells_the_sizes_and_leaves_the_device_usable(any_device: Device) -> None:
    any_device.info = dataclasses.replace(any_device.info, memory_bytes=1024)
    held = any_device.alloc((192,), DType.F32, label="held")
    calls: tuple[Callable[[], object], ...] = (
        lambda: any_device.alloc((65,), DType.F32, label="weights"),
        lambda: any_device.upload(bytes(260), (65,), DType.F32, label="weights"),
    )
    for attempt in calls:
        with pytest.raises(OutOfDeviceMemory, match=r"512 bytes for weights: 768 of its 1024"):
            attempt()
    assert any_device.memory_in_use == 768
    held.free()
    any_device.alloc((256,), DType.F32).free()


def test_out_of_host_memory_is_an_error_of_the_device(device: Device) -> None:
    with pytest.raises(OutOfDeviceMemory, match=str(1 << 62)):
        device.alloc((1 << 60,), DType.F32)
    device.alloc((1,), DType.F32).free()


def test_a_lost_device_says_so_in_every_call(any_device: Device) -> None:
    buffer = any_device.alloc((64,), DType.F32)
    recording = any_device.recorder().finish()
    recorder, timer = any_device.recorder(), any_device.timer(1)
    any_device.lose("the cable was pulled")
    assert any_device.lost is not None
    calls: tuple[Callable[[], object], ...] = (
        lambda: any_device.alloc((1,), DType.F32),
        lambda: any_device.upload(bytes(3), (1,), DType.F32),
        lambda: any_device.write(buffer.view(), b""),
        lambda: any_device.download(buffer),
        any_device.recorder,
        recorder.finish,
        lambda: any_device.submit(recording),
        lambda: any_device.timer(0),
        timer.read,
        lambda: any_device.export_kv_block(buffer, CACHE_SHAPE, DType.F16, 99),
        lambda: any_device.import_kv_block(buffer, CACHE_SHAPE, DType.F16, 99, np.zeros(1)),
        any_device.wait_idle,
    )
    for call in calls:
        with pytest.raises(DeviceLost, match="the cable was pulled"):
            call()
    buffer.free()
    any_device.close()


def test_a_closed_device_refuses_work_and_closes_twice(any_device: Device) -> None:
    buffer = any_device.alloc((64,), DType.F32)
    recording = any_device.recorder().finish()
    any_device.close()
    any_device.close()
    assert buffer.freed
    assert any_device.memory_in_use == 0
    calls: tuple[Callable[[], object], ...] = (
        lambda: any_device.alloc((1,), DType.F32),
        lambda: any_device.download(buffer),
        lambda: any_device.submit(recording),
        any_device.recorder,
    )
    for call in calls:
        with pytest.raises(InvalidUse, match="is closed"):
            call()
    buffer.free()


def test_two_hundred_devices_leave_no_thread(make_device: MakeDevice, rng: Random) -> None:
    before = threading.active_count()
    for _ in range(200):
        with make_device() as device:
            assert random_program(device, rng, length=3).run() < TOLERANCE
    assert threading.active_count() == before
