"""What the API says, as the HAL's errors. Its answers are replaced; nothing is broken."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.backends.d3d12.directml.fake_com import FakeObject, World
from tests.backends.vulkan.vulkan_programs import chain, floats, swiglu, words

from crossinfer.backends.d3d12 import D3D12Device, faults
from crossinfer.backends.d3d12.abi import Abi
from crossinfer.backends.d3d12.com import ComError, ComObject
from crossinfer.backends.d3d12.constants import REMOVED
from crossinfer.backends.d3d12.debug import Messages
from crossinfer.backends.d3d12.hresult import HResult
from crossinfer.backends.d3d12.interfaces import (
    ID3D12Device,
    ID3D12DeviceRemovedExtendedData,
    ID3D12InfoQueue,
)
from crossinfer.backends.d3d12.structures import (
    D3D12_AUTO_BREADCRUMB_NODE,
    D3D12_DRED_PAGE_FAULT_OUTPUT,
    D3D12_MESSAGE,
)
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InvalidUse, KernelUnsupported, OutOfDeviceMemory
from crossinfer.hal.executor import Executor
from crossinfer.hal.recording import Recording

NATIVE = Abi.WINDOWS if sys.platform == "win32" else Abi.SYSV
HUNG = HResult.DXGI_ERROR_DEVICE_HUNG
MB = 1 << 20


def answer(held: ComObject, **codes: int) -> None:
    """Have methods fail with these codes and do nothing."""
    for name, code in codes.items():

        def fail(*_arguments: Any, call: str = f"{held.interface}.{name}", code: int = code) -> Any:
            raise ComError(call, code)

        held.__dict__[name] = fail


def recover(held: ComObject) -> None:
    """Let all methods be found again."""
    for name in held.interface.methods:
        held.__dict__.pop(name, None)


@pytest.mark.parametrize(
    ("method", "use"),
    [
        ("Signal", lambda device, recording: device.submit(recording)),
        ("Signal", lambda device, _: device.download(words(device))),
        ("CreateCommittedResource", lambda device, _: device.alloc((64,), DType.F32)),
        ("CreateQueryHeap", lambda device, _: device.timer(2)),
    ],
)
def test_a_loss_is_noticed_wherever_it_shows(
    device: D3D12Device, method: str, use: Callable[[D3D12Device, Recording], object]
) -> None:
    recording = chain(device, 2)
    native = device.native
    held = native.queue if method == "Signal" else native.device
    answer(held, **{method: HResult.DXGI_ERROR_DEVICE_REMOVED})
    answer(native.device, GetDeviceRemovedReason=HUNG)
    with pytest.raises(DeviceLost):
        use(device, recording)
    recover(native.queue)
    recover(native.device)
    assert device.lost is not None
    assert device.lost.reason == (
        f"{held.interface}.{method} returned DXGI_ERROR_DEVICE_REMOVED (0x887A0005); "
        "GetDeviceRemovedReason: DXGI_ERROR_DEVICE_HUNG (0x887A0006)"
    )
    with pytest.raises(DeviceLost):
        device.alloc((1,), DType.F32)
    assert device.shared.is_stale  # whoever opens the adapter again gets another device


def test_a_fence_of_a_removed_device_tells_the_reason(device: D3D12Device) -> None:
    fence = device.submit(chain(device, 2))
    device.native._fence.__dict__["GetCompletedValue"] = lambda: REMOVED
    answer(device.native.device, GetDeviceRemovedReason=HUNG)
    with pytest.raises(DeviceLost, match=r"swiglu.*DXGI_ERROR_DEVICE_HUNG") as caught:
        fence.wait()
    assert len(caught.value.in_flight) == 1
    recover(device.native._fence)
    recover(device.native.device)


def test_after_a_loss_nothing_is_taken_for_a_lack_of_memory(device: D3D12Device) -> None:
    """Drivers answer the first call after a loss as they like."""
    answer(
        device.native.device,
        CreateCommittedResource=HResult.E_OUTOFMEMORY,
        GetDeviceRemovedReason=HUNG,
    )
    with pytest.raises(DeviceLost):
        device.alloc((MB,), DType.F32)
    recover(device.native.device)


def test_out_of_memory_tells_the_sizes_and_leaves_the_device_usable(device: D3D12Device) -> None:
    held = words(device)
    answer(device.native.device, CreateCommittedResource=HResult.E_OUTOFMEMORY)
    message = (
        f"no memory to allocate {100 * MB} bytes: ID3D12Device.CreateCommittedResource returned "
        rf"E_OUTOFMEMORY \(0x8007000E\); {held.size_in_bytes} bytes are in use"
    )
    with pytest.raises(OutOfDeviceMemory, match=message):
        device.alloc((25 * MB,), DType.F32)
    recover(device.native.device)
    assert device.memory_in_use == held.size_in_bytes
    device.alloc((MB,), DType.F32).free()


def test_a_download_that_gets_no_answer_is_a_loss(
    device: D3D12Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = words(device)
    device.deadline_s = 0.1
    with monkeypatch.context() as patch:
        patch.setattr(device.native, "is_done", lambda _value: False)
        with pytest.raises(DeviceLost, match=r"no answer within 0\.1 seconds"):
            device.download(buffer)


def test_grids_beyond_the_limits_and_wrong_views(device: D3D12Device) -> None:
    dispatch = swiglu(device, floats(device), floats(device), floats(device))
    for wrong, error, message in (
        (dataclasses.replace(dispatch, grid=(1, 1, 65536)), KernelUnsupported, "65535 groups"),
        (dataclasses.replace(dispatch, bindings=dispatch.bindings[1:]), InvalidUse, "views to re"),
        (dataclasses.replace(dispatch, constants=bytes(64)), InvalidUse, "bytes of constants"),
    ):
        executor = Executor(device)
        executor.dispatch(wrong)
        with pytest.raises(error, match=message):
            executor.submit_and_wait()


def test_a_pipeline_that_the_driver_refuses(device: D3D12Device) -> None:
    pipelines = device.shared.pipelines
    kept = dict(pipelines._pipelines)
    pipelines._pipelines.clear()
    answer(device.shared.device, CreateComputePipelineState=HResult.E_INVALIDARG)
    with pytest.raises(KernelUnsupported, match="CreateComputePipelineState returned E_INVALIDARG"):
        chain(device, 1)
    recover(device.shared.device)
    pipelines._pipelines.update(kept)
    device.submit(chain(device, 1)).wait()


def test_a_recording_that_failed_halfway_harms_no_later_one(device: D3D12Device) -> None:
    recording = chain(device, 1)
    device.submit(recording).wait()
    answer(device.native.device, CreateCommandList=HResult.E_OUTOFMEMORY)
    with pytest.raises(OutOfDeviceMemory):
        chain(device, 200)
    recover(device.native.device)
    later = chain(device, 200)
    device.submit(later).wait()
    x = [1.0]
    for _ in range(200):
        x.append(x[-1] / (1 + math.exp(-x[-1])))
    found = [np.frombuffer(device.download(buffer), np.float32) for buffer in later.buffers]
    assert sorted(values[0] for values in found) == pytest.approx(sorted([1.0, *x[-2:]]), rel=1e-4)


def test_breadcrumbs_tell_where_a_list_stood() -> None:
    """What DRED of Windows keeps, as the API would give it."""
    world = World()
    history = (ctypes.c_uint32 * 5)(15, 6, 15, 36, 7)
    done, ended = ctypes.c_uint32(3), ctypes.c_uint32(5)
    finished = D3D12_AUTO_BREADCRUMB_NODE(
        BreadcrumbCount=5,
        pLastBreadcrumbValue=ctypes.addressof(ended),
        pCommandHistory=ctypes.addressof(history),
    )
    node = D3D12_AUTO_BREADCRUMB_NODE(
        BreadcrumbCount=5,
        pLastBreadcrumbValue=ctypes.addressof(done),
        pCommandHistory=ctypes.addressof(history),
        pNext=ctypes.addressof(finished),
    )

    def breadcrumbs(place: int) -> int:
        ctypes.c_void_p.from_address(place).value = ctypes.addressof(node)
        return 0

    def fault(place: int) -> int:
        D3D12_DRED_PAGE_FAULT_OUTPUT.from_address(place).PageFaultVA = 0xF00D000
        return 0

    data = FakeObject(
        world,
        ID3D12DeviceRemovedExtendedData,
        {"GetAutoBreadcrumbsOutput": breadcrumbs, "GetPageFaultAllocationOutput": fault},
    )
    removed = ctypes.c_int32(HUNG).value
    fake = FakeObject(
        world,
        ID3D12Device,
        {
            "GetDeviceRemovedReason": lambda: removed,
            "QueryInterface": lambda _iid, place: data.give(place),
        },
    )
    held = ComObject(fake.address, ID3D12Device, NATIVE)

    class Native:
        device = held

        def removed_reason(self) -> int:
            return HUNG

    error = ComError("ID3D12CommandQueue.Signal", HResult.DXGI_ERROR_DEVICE_REMOVED)
    assert faults.loss_reason(Native(), error) == (  # type: ignore[arg-type]
        "ID3D12CommandQueue.Signal returned DXGI_ERROR_DEVICE_REMOVED (0x887A0005); "
        "GetDeviceRemovedReason: DXGI_ERROR_DEVICE_HUNG (0x887A0006); "
        "a list stood at command 3 of 5, EXECUTEMETACOMMAND; page fault at 0xf00d000"
    )
    assert data.references == 0
    assert world.complaints == []


def test_the_debug_layers_complaints_are_taken_once(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    texts = [(1, b"RESOURCE_BARRIER_BEFORE_AFTER_MISMATCH"), (3, b"all is well")]
    stored = list(texts)

    def message(number: int, place: int | None, size_place: int) -> int:
        severity, text = stored[number]
        header = ctypes.sizeof(D3D12_MESSAGE)
        if place is not None:
            ctypes.memmove(place + header, text + b"\0", len(text) + 1)
            found = D3D12_MESSAGE.from_address(place)
            found.Severity, found.pDescription = severity, place + header
        ctypes.c_size_t.from_address(size_place).value = header + len(text) + 1
        return 0

    queue = FakeObject(
        world,
        ID3D12InfoQueue,
        {
            "GetNumStoredMessages": lambda: len(stored),
            "GetMessage": message,
            "ClearStoredMessages": stored.clear,
        },
    )
    fake = FakeObject(
        world, ID3D12Device, {"QueryInterface": lambda _iid, place: queue.give(place)}
    )
    messages = Messages(ComObject(fake.address, ID3D12Device, NATIVE))
    assert messages.take() == ["RESOURCE_BARRIER_BEFORE_AFTER_MISMATCH"]
    assert messages.take() == []
    assert "BEFORE_AFTER_MISMATCH" in capsys.readouterr().err
    assert world.complaints == []


def test_complaints_are_an_invalid_use_of_the_call(device: D3D12Device) -> None:
    class Complaining:
        def take(self) -> list[str]:
            return ["a barrier is missing"]

    device._messages = Complaining()  # type: ignore[assignment]
    with pytest.raises(InvalidUse, match="debug layer objects: a barrier is missing"):
        device.alloc((1,), DType.F32)
    device._messages = None


def test_the_debug_layer_must_be_installed(
    device: D3D12Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossinfer.backends.d3d12.debug import enable_breadcrumbs, enable_debug_layer

    monkeypatch.setattr(device.shared.api, "debug_interface", lambda _interface: None)
    with pytest.raises(KernelUnsupported, match="Graphics Tools"):
        enable_debug_layer(device.shared.api)
    with pytest.raises(KernelUnsupported, match="CROSSINFER_D3D12_DRED"):
        enable_breadcrumbs(device.shared.api)
