"""Every broken rule of the HAL is an InvalidUse that says which, and leaves the device usable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.conformance.conftest import MakeDevice

from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse
from crossinfer.formats.blocks import Q4_0
from crossinfer.graph.op import float32
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Access, Binding, Buffer, Role, View
from crossinfer.hal.device import Device
from crossinfer.hal.executor import Executor
from crossinfer.hal.kernel import MAX_BINDINGS, Dispatch, Kernel

Call = Callable[[], object]
KERNEL = Kernel("test_kernel", None)


def words(device: Device, count: int = 64) -> Buffer:
    return device.alloc((count,), DType.I32, label="words")


def read(*views: View) -> tuple[Binding, ...]:
    return tuple(Binding(view, Access.READ) for view in views)


def check_dispatch_refused(device: Device, dispatch: Dispatch, message: str) -> None:
    """Both by a recorder and by an executor, and without a trace in the recording."""
    recorder, executor = device.recorder(), Executor(device)
    for record in (recorder.dispatch, executor.dispatch):
        with pytest.raises(InvalidUse, match=message):
            record(dispatch)
    assert recorder.finish().commands == ()
    executor.submit_and_wait()


@pytest.mark.parametrize("shape", [(), (0,), (3, -1)])
def test_shapes_without_elements(any_device: Device, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidUse, match="sizes are at least 1"):
        any_device.alloc(shape, DType.F32)


def test_rows_that_are_no_whole_blocks(any_device: Device) -> None:
    calls: tuple[Call, ...] = (
        lambda: any_device.alloc((2, 33), Q4_0, Role.WEIGHT, "embedding"),
        lambda: any_device.upload(bytes(36), (2, 33), Q4_0, Role.WEIGHT, "embedding"),
    )
    for call in calls:
        with pytest.raises(InvalidUse, match=r"embedding of q4_0 .* rows of 33 .* multiple of 32"):
            call()


def test_uploads_of_another_size_than_their_shape(any_device: Device) -> None:
    with pytest.raises(InvalidUse, match=r"table of f16 \(3, 5\) takes 30 bytes, but 28 were"):
        any_device.upload(bytes(28), (3, 5), DType.F16, label="table")
    assert any_device.memory_in_use == 0


def test_data_with_gaps(any_device: Device) -> None:
    with pytest.raises(InvalidUse, match="contiguous"):
        any_device.upload(np.zeros((4, 6), np.float32).T, (6, 4), DType.F32)
    with pytest.raises(InvalidUse, match="contiguous"):
        any_device.write(words(any_device).view(), np.zeros(8, np.int32)[::2])


@pytest.mark.parametrize(("offset", "size"), [(-256, 256), (0, 0), (0, 257), (256, 256), (0, -1)])
def test_views_outside_of_their_buffer(any_device: Device, offset: int, size: int) -> None:
    buffer = words(any_device)
    makes: tuple[Call, ...] = (
        lambda: buffer.view(offset, size),
        lambda: View(buffer, offset, size),
    )
    for make in makes:
        with pytest.raises(InvalidUse, match=r"Buffer\(words, 256 bytes\)"):
            make()


def test_views_that_start_between_multiples_of_256(any_device: Device) -> None:
    buffer, other = words(any_device, 256), words(any_device)
    with pytest.raises(InvalidUse, match="starts at byte 128"):
        buffer.view(128)
    crooked = View(buffer, 128, 256)
    check_dispatch_refused(
        any_device, Dispatch(KERNEL, read(other.view(), crooked)), "View 1 .* at byte 128"
    )
    recorder = any_device.recorder()
    with pytest.raises(InvalidUse, match="source of a copy starts at byte 128"):
        recorder.copy_region(crooked, other.view())
    with pytest.raises(InvalidUse, match="destination of a copy starts at byte 128"):
        recorder.copy_region(other.view(), crooked)


def test_a_write_longer_than_its_view(any_device: Device) -> None:
    with pytest.raises(InvalidUse, match="101 bytes were to be written to a view of 100"):
        any_device.write(words(any_device).view(0, 100), bytes(101))


def each_use(device: Device, buffer: Buffer) -> list[Call]:
    """Every call that takes a buffer."""
    view, own = View(buffer, 0, 64), words(device).view(0, 64)
    return [
        lambda: device.write(view, b""),
        lambda: device.download(buffer),
        lambda: device.download(view),
        lambda: device.free(buffer),
        lambda: device.recorder(buffer),
        lambda: device.recorder().dispatch(Dispatch(KERNEL, read(view))),
        lambda: device.recorder().copy_region(view, own),
        lambda: device.recorder().copy_region(own, view),
        lambda: device.export_kv_block(buffer, (1, 2, 1, 16, 2), DType.F32, 0),
        lambda: device.import_kv_block(
            buffer, (1, 2, 1, 16, 2), DType.F32, 0, np.zeros((2, 1, 16, 2), np.float32)
        ),
    ]


def test_freed_buffers(any_device: Device) -> None:
    buffer = words(any_device)
    buffer.free()
    for use in each_use(any_device, buffer):
        with pytest.raises(InvalidUse, match=r"Buffer\(words, 256 bytes\) was freed"):
            use()


def test_buffers_of_another_device(any_device: Device, make_any_device: MakeDevice) -> None:
    with make_any_device() as other:
        for use in each_use(any_device, words(other)):
            with pytest.raises(InvalidUse, match="belongs to device"):
                use()


def test_buffers_freed_after_their_command(any_device: Device) -> None:
    source, target = words(any_device), words(any_device)
    recorder, late = any_device.recorder(), any_device.recorder()
    for one in (recorder, late):
        one.copy_region(source.view(), target.view())
    recording = recorder.finish()
    target.free()
    with pytest.raises(InvalidUse, match="was freed"):
        any_device.submit(recording)
    with pytest.raises(InvalidUse, match="was freed"):
        late.finish()


def test_limits_of_a_dispatch(any_device: Device) -> None:
    views = [words(any_device).view() for _ in range(MAX_BINDINGS + 1)]
    for dispatch, message in (
        (Dispatch(KERNEL, read(*views)), f"test_kernel has {len(views)} views; at most"),
        (Dispatch(KERNEL, (), bytes(129)), "test_kernel has 129 bytes of constants; at most 128"),
        (Dispatch(KERNEL, (), grid=(1, 0, 1)), r"grid \(1, 0, 1\)"),
        (Dispatch(KERNEL, (), grid=(1, 1, -1)), r"grid \(1, 1, -1\)"),
        (Dispatch(KERNEL, (), grid=(1, 1 << 32, 1)), r"grid \(1, 4294967296, 1\)"),
    ):
        check_dispatch_refused(any_device, dispatch, message)
    any_device.recorder().dispatch(Dispatch(KERNEL, read(*views[:-1]), bytes(128)))


@pytest.mark.parametrize("first", Access)
@pytest.mark.parametrize("second", Access)
def test_overlapping_views_of_one_dispatch(
    any_device: Device, first: Access, second: Access
) -> None:
    buffer = words(any_device, 128)
    overlapping = (Binding(buffer.view(0, 260), first), Binding(buffer.view(256), second))
    beside = (Binding(buffer.view(0, 256), first), Binding(buffer.view(256), second))
    any_device.recorder().dispatch(Dispatch(KERNEL, beside))
    if first is second is Access.READ:
        any_device.recorder().dispatch(Dispatch(KERNEL, overlapping))
    else:
        check_dispatch_refused(any_device, Dispatch(KERNEL, overlapping), "two views of the same")


def test_copies_that_do_not_fit(any_device: Device) -> None:
    buffer = words(any_device, 256)
    recorder = any_device.recorder()
    with pytest.raises(InvalidUse, match=r"from 256 bytes .* to 128 bytes"):
        recorder.copy_region(buffer.view(0, 256), buffer.view(512, 128))
    with pytest.raises(InvalidUse, match="overlaps itself"):
        recorder.copy_region(buffer.view(0, 512), buffer.view(256, 512))
    recorder.copy_region(buffer.view(0, 256), buffer.view(256, 256))


def test_a_finished_recorder(any_device: Device) -> None:
    view, timer = words(any_device, 128).view(0, 256), any_device.timer(1)
    recorder = any_device.recorder()
    recorder.finish()
    calls: tuple[Call, ...] = (
        lambda: recorder.dispatch(Dispatch(KERNEL, read(view))),
        lambda: recorder.copy_region(view, view),
        lambda: recorder.timestamp(timer, 0),
        recorder.finish,
    )
    for call in calls:
        with pytest.raises(InvalidUse, match="The recorder is finished"):
            call()


def test_what_is_in_flight_is_neither_submitted_nor_freed(
    any_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_device, "_submit", lambda *_: None)  # nobody finishes the work
    any_device.deadline_s = 0.05  # and nobody waits for it long
    source, target, parameters = (words(any_device) for _ in range(3))
    recorder = any_device.recorder(parameters)
    recorder.copy_region(source.view(), target.view())
    recording = recorder.finish()
    fence = any_device.submit(recording)
    assert not fence.done
    with pytest.raises(InvalidUse, match="in flight already"):
        any_device.submit(recording)
    for buffer in (source, target, parameters):
        with pytest.raises(InvalidUse, match="used by a recording in flight"):
            buffer.free()
    fence.signal()
    assert any_device.submit(recording) is not fence
    any_device.lose("the test is over")


def test_parameters_that_do_not_fit(any_device: Device) -> None:
    without = any_device.recorder().finish()
    with pytest.raises(InvalidUse, match="no buffer for the parameters"):
        any_device.submit(without, b"1234")
    recording = any_device.recorder(words(any_device)).finish()
    with pytest.raises(InvalidUse, match="257 bytes of parameters"):
        any_device.submit(recording, bytes(257))
    any_device.submit(recording, bytes(256)).wait()


def test_things_of_another_device(any_device: Device, make_any_device: MakeDevice) -> None:
    with make_any_device() as other:
        with pytest.raises(InvalidUse, match="was made for"):
            any_device.submit(other.recorder().finish())
        with pytest.raises(InvalidUse, match="timer belongs to another device"):
            any_device.recorder().timestamp(other.timer(1), 0)


def test_timers(any_device: Device) -> None:
    with pytest.raises(InvalidUse, match="0 entries"):
        any_device.timer(0)
    timer, recorder = any_device.timer(3), any_device.recorder()
    for index in (-1, 3):
        with pytest.raises(InvalidUse, match="entries 0 to 2"):
            recorder.timestamp(timer, index)
        with pytest.raises(InvalidUse, match="entries 0 to 2"):
            timer.elapsed(0, index)
    recorder.timestamp(timer, 0)
    any_device.submit(recorder.finish()).wait()
    with pytest.raises(InvalidUse, match="not both written"):
        timer.elapsed(0, 1)
    assert timer.elapsed(0, 0) == 0


def test_kv_blocks_that_do_not_exist(any_device: Device) -> None:
    shape = (3, 2, 1, 16, 4)
    cache = any_device.alloc(shape, DType.F16, Role.KV_CACHE)
    values = np.zeros(shape[1:], np.float32)
    for block in (-1, 3):
        with pytest.raises(InvalidUse, match="blocks 0 to 2"):
            any_device.export_kv_block(cache, shape, DType.F16, block)
        with pytest.raises(InvalidUse, match="blocks 0 to 2"):
            any_device.import_kv_block(cache, shape, DType.F16, block, values)
    with pytest.raises(InvalidUse, match=r"shape \(2, 1, 16, 4\), not \(1, 16, 4\)"):
        any_device.import_kv_block(cache, shape, DType.F16, 0, values[0])


def test_misuse_leaves_the_device_usable(device: Device) -> None:
    x = float32(2, 8)
    operands = {"gate": x, "up": x, "output": x}
    lowering = device.lower(Swiglu(), operands)[0]
    data = np.linspace(-1, 1, 16, dtype=np.float32)
    views = {name: device.upload(data, (16,), DType.F32).view(0, 64) for name in operands}
    executor = Executor(device)
    with pytest.raises(InvalidUse):
        executor.dispatch(Dispatch(KERNEL, (), grid=(0, 0, 0)))
    for dispatch in lowering.bind(views):
        executor.dispatch(dispatch)
    executor.submit_and_wait()
    found = np.frombuffer(device.download(views["output"]), np.float32)
    np.testing.assert_allclose(found, data / (1 + np.exp(-data)) * data, rtol=1e-5)
