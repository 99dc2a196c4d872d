"""What is special to the reference device."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.backends.reference import device as reference
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import DeviceLost, InvalidUse, KernelUnsupported
from crossinfer.formats.blocks import BLOCK_FORMATS, Q4_0, BlockFormat, dequantize
from crossinfer.graph.op import float32
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.buffer import Role
from crossinfer.hal.executor import Executor
from crossinfer.verify.cases import all_cases
from crossinfer.verify.data import random_stored

ROW = float32(1, 64)
OPERANDS = {"gate": ROW, "up": ROW, "output": ROW}


@pytest.fixture
def device() -> Iterator[ReferenceDevice]:
    with ReferenceDevice() as opened:
        yield opened


def run_swiglu(device: ReferenceDevice) -> None:
    views = {name: device.alloc((64,), DType.F32).view() for name in OPERANDS}
    executor = Executor(device)
    for dispatch in device.lower(Swiglu(), OPERANDS)[0].bind(views):
        executor.dispatch(dispatch)
    executor.submit_and_wait()


def test_there_is_a_kernel_for_every_case(device: ReferenceDevice) -> None:
    for case in all_cases():
        (lowering,) = device.lower(case.op, case.operands())
        assert lowering.kernel_names == (case.variant,)


@pytest.mark.parametrize("op", sorted({case.op.name for case in all_cases()}))
def test_it_lacks_what_it_is_told_to(op: str) -> None:
    with ReferenceDevice(lacks=[op]) as device:
        for case in all_cases():
            assert bool(device.lower(case.op, case.operands())) == (case.op.name != op)


@pytest.mark.parametrize("storage", BLOCK_FORMATS, ids=lambda storage: storage.label)
def test_weights_are_kept_as_their_values(device: ReferenceDevice, storage: BlockFormat) -> None:
    shape = (5, 512)
    data = random_stored(np.random.default_rng(3), storage, shape)
    buffer = device.upload(data, shape, storage, Role.WEIGHT)
    assert device.packed_size(shape, storage, Role.WEIGHT) == 5 * 512 * 4
    found = np.frombuffer(device.download(buffer), np.float32).reshape(shape)
    np.testing.assert_array_equal(found, dequantize(data.tobytes(), storage, shape))


def test_large_weights_are_converted_in_parts(device: ReferenceDevice) -> None:
    shape = (3000, 4096)  # 6.9 MB
    data = random_stored(np.random.default_rng(3), Q4_0, shape)
    done: list[int] = []
    buffer = device.upload(
        data, shape, Q4_0, Role.WEIGHT, progress=lambda _task, part, _total: done.append(part)
    )
    assert len(done) > 1
    assert done[-1] == device.packed_size(shape, Q4_0, Role.WEIGHT)
    last = np.frombuffer(device.download(buffer), np.float32).reshape(shape)[-1]
    np.testing.assert_array_equal(last, dequantize(data[-128:].tobytes(), Q4_0, (4096,)))


def test_new_memory_looks_bad(device: ReferenceDevice) -> None:
    raw = device.download(device.alloc((64,), DType.F32))
    assert np.all(np.isnan(np.frombuffer(raw, np.float32)))
    assert np.all(np.frombuffer(raw, np.int32) == -1)


def test_a_bug_in_a_kernel_loses_the_device_and_hangs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(reference, "run_dispatch", broken)
    device = ReferenceDevice()
    with pytest.raises(DeviceLost, match="swiglu: ZeroDivisionError: a bug"):
        run_swiglu(device)
    device.close()


def test_an_error_of_a_kernel_reaches_the_caller(
    device: ReferenceDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise KernelUnsupported("not this size")

    with monkeypatch.context() as patch:
        patch.setattr(reference, "run_dispatch", refuses)
        with pytest.raises(KernelUnsupported, match="not this size"):
            run_swiglu(device)
    run_swiglu(device)
    assert device.lost is None


def test_independent_commands_run_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(dispatch: object, _views: object) -> None:
        order.append(getattr(dispatch, "label", ""))

    monkeypatch.setattr(reference, "run_dispatch", note)
    seen = set()
    for seed in range(20):
        with ReferenceDevice(threads=1, seed=seed) as device:
            executor = Executor(device)
            for label in "abc":
                views = {name: device.alloc((64,), DType.F32).view() for name in OPERANDS}
                (dispatch,) = device.lower(Swiglu(), OPERANDS)[0].bind(views, label)
                executor.dispatch(dispatch)
            executor.submit_and_wait()
        seen.add("".join(order))
        order.clear()
    assert all(sorted(one) == ["a", "b", "c"] for one in seen)
    assert len(seen) == 6


def test_closing_ends_its_threads() -> None:
    before = threading.active_count()
    device = ReferenceDevice()
    assert threading.active_count() > before
    run_swiglu(device)
    device.close()
    assert threading.active_count() == before
    with pytest.raises(InvalidUse):
        device.alloc((1,), DType.F32)
