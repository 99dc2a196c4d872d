"""What drivers say, as the HAL's errors. The driver's answers are replaced; nothing is broken."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.backends.vulkan.vulkan_programs import chain, floats, swiglu, wait_idle, words

from crossinfer.backends.vulkan import VulkanDevice, encode
from crossinfer.backends.vulkan.constants import Result
from crossinfer.backends.vulkan.errors import VulkanError
from crossinfer.backends.vulkan.structures import Record
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, KernelUnsupported, OutOfDeviceMemory
from crossinfer.hal.executor import Executor
from crossinfer.hal.recording import Recording
from crossinfer.verify.cases import cases_of

LOST = Result.VK_ERROR_DEVICE_LOST
MB = 1 << 20


def answer(device: VulkanDevice, **answers: int) -> None:
    """Have functions return these codes and do nothing."""
    for name, code in answers.items():
        setattr(device.native.functions, name, lambda *_, code=code: code)


def recover(device: VulkanDevice) -> None:
    """Let all functions of the driver be found again."""
    functions = device.native.functions
    for name in [name for name in vars(functions) if name.startswith("vk")]:
        delattr(functions, name)


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("vkQueueSubmit", lambda device, recording: device.submit(recording)),
        ("vkQueueSubmit", lambda device, _: device.download(words(device))),
        ("vkWaitForFences", lambda device, recording: device.submit(recording).wait()),
        ("vkGetFenceStatus", lambda device, recording: device.submit(recording).done),
        ("vkAllocateMemory", lambda device, _: device.alloc((64 * MB,), DType.F32)),
        ("vkAllocateCommandBuffers", lambda device, _: chain(device, 1)),
    ],
)
def test_a_loss_is_noticed_wherever_it_shows(
    device: VulkanDevice, function: str, use: Callable[[VulkanDevice, Recording], object]
) -> None:
    recording = chain(device, 2)
    answer(device, **{function: LOST})
    with contextlib.suppress(DeviceLost):  # `done` only tells that it is over
        use(device, recording)
    recover(device)
    assert device.lost is not None
    assert device.lost.reason == f"{function} returned VK_ERROR_DEVICE_LOST"
    with pytest.raises(DeviceLost):
        device.alloc((1,), DType.F32)


def test_a_loss_names_the_kernels_in_flight(device: VulkanDevice) -> None:
    fence = device.submit(chain(device, 2))
    answer(device, vkWaitForFences=LOST)
    with pytest.raises(DeviceLost, match="swiglu") as caught:
        fence.wait()
    recover(device)
    assert len(caught.value.in_flight) == 1


def test_after_a_loss_nothing_is_taken_for_a_lack_of_memory(device: VulkanDevice) -> None:
    """Drivers answer the first call after a loss as they like."""
    answer(device, vkAllocateMemory=Result.VK_ERROR_OUT_OF_DEVICE_MEMORY, vkGetFenceStatus=LOST)
    with pytest.raises(DeviceLost):
        device.alloc((64 * MB,), DType.F32)
    recover(device)


def test_the_driver_tells_why(device: VulkanDevice) -> None:
    """VK_EXT_device_fault, as a driver that has it would answer."""

    def fault(_device: int, counts: Any, info: Any) -> int:
        counts._obj.addressInfoCount = counts._obj.vendorInfoCount = 1
        if info is not None:
            info._obj.description = b"page fault"
            _fill(info._obj, "pVendorInfos", 256, 0xBAD)
            _fill(info._obj, "pAddressInfos", 8, 0xF00D)
        return 0

    device.native.tells_faults = True
    setattr(device.native.functions, "vkGetDeviceFaultInfoEXT", fault)  # noqa: B010
    fence = device.submit(chain(device, 1))
    answer(device, vkWaitForFences=LOST)
    with pytest.raises(DeviceLost, match=r"\(page fault;  code 0xbad; address 0xf00d\)"):
        fence.wait()
    recover(device)


def _fill(info: Record, pointer: str, offset: int, value: int) -> None:
    ctypes.c_uint64.from_address(getattr(info, pointer) + offset).value = value


def test_out_of_memory_tells_the_sizes_and_leaves_the_device_usable(device: VulkanDevice) -> None:
    held = words(device)
    answer(device, vkAllocateMemory=Result.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    message = (
        f"no memory to allocate {100 * MB} bytes: vkAllocateMemory returned "
        f"VK_ERROR_OUT_OF_DEVICE_MEMORY; {held.size_in_bytes} bytes are in use"
    )
    with pytest.raises(OutOfDeviceMemory, match=message):
        device.alloc((25 * MB,), DType.F32)
    recover(device)
    assert device.memory_in_use == held.size_in_bytes
    device.alloc((MB,), DType.F32).free()


def test_no_memory_for_a_submission_is_no_loss(device: VulkanDevice) -> None:
    recording = chain(device, 2)
    answer(device, vkQueueSubmit=Result.VK_ERROR_OUT_OF_HOST_MEMORY)
    with pytest.raises(OutOfDeviceMemory, match="VK_ERROR_OUT_OF_HOST_MEMORY"):
        device.submit(recording)
    recover(device)
    device.submit(recording).wait()


def test_a_recording_that_ran_in_part_is_a_loss(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would tell when that part has ended."""
    monkeypatch.setattr(encode, "PART_COMMANDS", 2)
    recording = chain(device, 5)
    submit, submitted = device.native.submit, list[int]()

    def fail_at_the_second(info: object, fence: int | None, count: int = 1) -> None:
        submitted.append(count)
        if len(submitted) == 2:
            raise VulkanError("vkQueueSubmit", Result.VK_ERROR_OUT_OF_HOST_MEMORY)
        submit(info, fence, count)

    monkeypatch.setattr(device.native, "submit", fail_at_the_second)
    with pytest.raises(DeviceLost, match="VK_ERROR_OUT_OF_HOST_MEMORY"):
        device.submit(recording)


def test_a_tensor_larger_than_an_allocation_may_be(device: VulkanDevice) -> None:
    device.info = dataclasses.replace(device.info, memory_bytes=None)
    too_large = device.native.physical.max_allocation + 4
    with pytest.raises(OutOfDeviceMemory, match="VK_ERROR_OUT_OF_DEVICE_MEMORY"):
        device.alloc((too_large // 4,), DType.F32)


def test_a_queue_that_hangs_is_lost_and_can_be_closed(device: VulkanDevice) -> None:
    """It is left alone: destroying what a queue still uses could harm the whole process."""
    fence = device.submit(chain(device, 2))
    answer(device, vkWaitForFences=Result.VK_TIMEOUT, vkGetFenceStatus=Result.VK_NOT_READY)
    started = time.monotonic()
    with pytest.raises(DeviceLost, match=r"no answer within 0\.2 seconds"):
        fence.wait(0.2)
    device.close()
    assert time.monotonic() - started < 5
    assert device.native.objects > 0
    recover(device)
    wait_idle(device.native)
    device.native.close()


def test_a_download_that_gets_no_answer_is_a_loss(device: VulkanDevice) -> None:
    buffer = words(device)
    device.deadline_s = 0.1
    answer(device, vkWaitForFences=Result.VK_TIMEOUT)
    with pytest.raises(DeviceLost, match=r"no answer within 0\.1 seconds"):
        device.download(buffer)
    recover(device)


def test_grids_and_views_beyond_the_limits(device: VulkanDevice) -> None:
    dispatch = swiglu(device, floats(device), floats(device), floats(device))
    executor = Executor(device)
    executor.dispatch(dataclasses.replace(dispatch, grid=(1, 1, 1 << 31)))
    with pytest.raises(KernelUnsupported, match=r"needs the grid \(1, 1, 2147483648\)"):
        executor.submit_and_wait()
    device.native.physical.limits.maxStorageBufferRange = 128
    executor.dispatch(dispatch)
    with pytest.raises(KernelUnsupported, match=r"needs a view of 256 bytes, .* allows 128"):
        executor.submit_and_wait()


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("maxComputeWorkGroupInvocations", "threads in a group"),
        ("maxPerStageDescriptorStorageBuffers", "storage buffers"),
        ("maxPushConstantsSize", "bytes of push constants"),
        ("maxComputeSharedMemorySize", "bytes of groupshared memory"),
    ],
)
def test_kernels_beyond_the_limits(device: VulkanDevice, limit: str, what: str) -> None:
    setattr(device.native.physical.limits, limit, 1)
    executor = Executor(device)
    executor.dispatch(swiglu(device, floats(device), floats(device), floats(device)))
    with pytest.raises(KernelUnsupported, match=f"{what}, and device vulkan has at most 1"):
        executor.submit_and_wait()


def test_ops_on_tensors_larger_than_a_view_are_left_to_others(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cases_of("linear")[0]
    assert device.lower(case.op, case.operands())
    small = dataclasses.replace(device._capabilities, max_view_bytes=64)
    monkeypatch.setattr(device, "_capabilities", small)
    assert device.lower(case.op, case.operands()) == ()
    assert "more than 64 B" in device.refusal(case.op, case.operands())


def test_a_pipeline_that_the_driver_refuses(device: VulkanDevice) -> None:
    answer(device, vkCreateComputePipelines=Result.VK_ERROR_UNKNOWN)
    with pytest.raises(KernelUnsupported, match="vkCreateComputePipelines returned VK_ERROR_UNKN"):
        chain(device, 1)
    recover(device)
    recording = chain(device, 1)
    device.submit(recording).wait()


def test_results_without_a_name_stay_numbers(device: VulkanDevice) -> None:
    answer(device, vkAllocateCommandBuffers=-1234)
    with pytest.raises(KernelUnsupported, match="returned VkResult -1234"):
        chain(device, 1)
    recover(device)
    assert np.frombuffer(device.download(words(device, 3)), np.int32)[0] == 3
