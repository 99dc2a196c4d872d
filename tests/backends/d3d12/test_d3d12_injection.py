"""A host's device and queue: used, counted, and left as they were."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable, Iterator

import pytest
from tests.d3d12_driver import NO_DIRECT3D
from tests.tiny_models import TinyModels

from crossinfer import LLM, from_d3d12
from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.constants import FeatureLevel, ListType
from crossinfer.backends.d3d12.interfaces import ID3D12CommandQueue, ID3D12Fence
from crossinfer.backends.d3d12.libraries import Direct3D, direct3d
from crossinfer.backends.d3d12.structures import D3D12_COMMAND_QUEUE_DESC
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InvalidUse
from crossinfer.hal.executor import Executor

COPY_LISTS = 3


@dataclasses.dataclass(frozen=True)
class Host:
    """A program that has a device, a queue and a fence of its own."""

    api: Direct3D
    device: ComObject
    queue: ComObject
    fence: ComObject

    def counts(self) -> list[int]:
        """How many references its objects have."""
        return [_references(thing) for thing in (self.device, self.queue, self.fence)]

    def still_works(self) -> bool:
        """Whether its queue runs what it is given."""
        value = int(self.fence.GetCompletedValue()) + 1
        self.queue.Signal(self.fence, value)
        return _comes(lambda: int(self.fence.GetCompletedValue()) == value)


def _references(thing: ComObject) -> int:
    thing.AddRef()
    return int(thing.Release())


def _comes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _queue(device: ComObject, kind: int) -> ComObject:
    description = D3D12_COMMAND_QUEUE_DESC(Type=kind)
    return device.create("CreateCommandQueue", ID3D12CommandQueue, ctypes.byref(description))


def _make_host(kind: int = ListType.DIRECT) -> Host:
    api = direct3d()
    if api is None:
        pytest.skip(NO_DIRECT3D)
    device = api.create_device(None, FeatureLevel.LEVEL_11_0)
    return Host(api, device, _queue(device, kind), device.create("CreateFence", ID3D12Fence, 0, 0))


@pytest.fixture(params=[ListType.DIRECT, ListType.COMPUTE], ids=lambda kind: kind.name.lower())
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    made = _make_host(request.param)
    yield made
    made.device.references.release()


def test_a_model_runs_on_it_and_leaves_it_as_it_was(host: Host, tiny_models: TinyModels) -> None:
    before = host.counts()
    model = tiny_models("tiny-qwen2", "f32")
    with from_d3d12(host.device.address, host.queue.address) as device:
        assert device.info.name == "d3d12"
        with LLM(model, device, context=64) as llm:
            tokens = llm.generate("Once", max_tokens=6).tokens
        with LLM(model, device, context=64) as llm:  # the device outlives a model
            assert llm.generate("Once", max_tokens=6).tokens == tokens
        assert host.still_works()
    assert host.counts() == before
    assert host.still_works()
    with LLM(model, "cpu", context=64) as llm:
        assert llm.generate("Once", max_tokens=6).tokens == tokens


def test_two_devices_over_one_queue(host: Host) -> None:
    before, data = host.counts(), bytes(range(256)) * 4
    first = from_d3d12(host.device.address, host.queue.address)
    second = from_d3d12(host.device.address, host.queue.address)
    for device in (first, second):
        source = device.upload(data, (256,), DType.I32)
        target = device.alloc((256,), DType.I32)
        executor = Executor(device)
        executor.copy_region(source.view(), target.view())
        executor.submit_and_wait()
        assert device.download(target) == data
    first.close()
    first.close()
    assert second.download(second.upload(data, (256,), DType.I32)) == data
    second.close()
    assert host.counts() == before


def test_closing_does_not_wait_for_the_host(host: Host) -> None:
    before = host.counts()
    device = from_d3d12(host.device.address, host.queue.address)
    device.download(device.upload(bytes(1024), (256,), DType.I32))
    host.queue.Wait(host.fence, 1)  # the host's queue stands still until the host says so
    started = time.monotonic()
    device.close()
    assert time.monotonic() - started < 5
    assert host.fence.GetCompletedValue() == 0
    host.fence.Signal(1)
    assert host.still_works()
    assert host.counts() == before


def test_a_queue_that_the_host_holds_up_is_told(host: Host) -> None:
    before = host.counts()
    device = from_d3d12(host.device.address, host.queue.address, deadline_s=0.2)
    source, target = (device.upload(bytes(1024), (256,), DType.I32) for _ in range(2))
    host.queue.Wait(host.fence, 1)
    executor = Executor(device)
    executor.copy_region(source.view(), target.view())
    with pytest.raises(DeviceLost, match="no answer within"):
        executor.submit_and_wait()
    host.fence.Signal(1)
    device.close()
    assert host.still_works()
    assert host.counts() == before


def test_what_cannot_be_used_is_refused_and_keeps_its_counts() -> None:
    host, other = _make_host(), _make_host()
    copying = _queue(host.device, COPY_LISTS)
    before = [*host.counts(), *other.counts(), _references(copying)]
    device, queue = host.device.address, host.queue.address
    for arguments, message in (
        ((0, queue), "null"),
        ((device, 0), "null"),
        ((queue, device), "in that order"),
        ((device, host.fence.address), "in that order"),
        ((device, copying.address), "only copy"),
        ((device, other.queue.address), "another device"),
    ):
        with pytest.raises(InvalidUse, match=message):
            from_d3d12(*arguments)
    assert [*host.counts(), *other.counts(), _references(copying)] == before
    for made in (other, host):
        made.device.references.release()
