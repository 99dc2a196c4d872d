"""The life of an operator against a DirectML that removes no device, but complains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.backends.d3d12.directml.dml_setup import Setup, every_operator
from tests.backends.d3d12.directml.fake_directml import Needs
from tests.backends.d3d12.directml.layouts import constant

from crossinfer.backends.d3d12.com import ComObject
from crossinfer.backends.d3d12.descriptors import DescriptorLoan
from crossinfer.backends.d3d12.directml.binding import BindingTable
from crossinfer.backends.d3d12.operators import DescriptorRange, Operator, Place
from crossinfer.core.dtypes import DType
from crossinfer.core.errors import InvalidUse, KernelUnsupported

OPERATORS = [
    pytest.param(description, id=f"{name} {dtype.label}")
    for dtype in (DType.F32, DType.F16)
    for name, description in every_operator(dtype).items()
]
GEMM = every_operator(DType.F32)["gemm"]


def test_calls_come_in_order() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    setup.record(operator, setup.places(operator))
    assert setup.world.calls == [
        "IDMLDevice.CreateCommandRecorder",
        "IDMLDevice.CheckFeatureSupport",
        "IDMLDevice.CheckFeatureSupport",
        "IDMLDevice.CreateOperator",
        "IDMLDevice.CompileOperator",
        # The initialiser.
        "IDMLDevice.CreateOperatorInitializer",
        *_HEAP,  # once for all
        "IDMLDevice.CreateBindingTable",
        "IDMLBindingTable.BindOutputs",
        "IDMLBindingTable.BindTemporaryResource",
        "IDMLCommandRecorder.RecordDispatch",
        # The operator.
        "IDMLDevice.CreateBindingTable",
        "IDMLBindingTable.BindInputs",
        "IDMLBindingTable.BindOutputs",
        "IDMLBindingTable.BindTemporaryResource",
        "IDMLBindingTable.BindPersistentResource",
        "IDMLCommandRecorder.RecordDispatch",
    ]
    assert setup.world.complaints == []


_HEAP = [
    "ID3D12Device.CreateDescriptorHeap",
    "ID3D12Device.GetDescriptorHandleIncrementSize",
    "ID3D12DescriptorHeap.GetCPUDescriptorHandleForHeapStart",
    "ID3D12DescriptorHeap.GetGPUDescriptorHandleForHeapStart",
]


@pytest.mark.parametrize("description", OPERATORS)
@pytest.mark.parametrize("temporary", [0, 300])
@pytest.mark.parametrize("persistent", [0, 512])
def test_what_an_operator_needs_is_bound(description: Any, temporary: int, persistent: int) -> None:
    setup = Setup(
        needs=lambda _: Needs(7, temporary, persistent), initialiser_needs=Needs(3, temporary)
    )
    operator = setup.session.operator(description)
    assert isinstance(operator, Operator)
    assert (operator.descriptors, operator.temporary_bytes) == (7, temporary)
    operator.prepare()
    commands, kept = setup.record(operator, setup.places(operator))
    for _ in range(3):  # a list is recorded once, and run again and again
        setup.d3d12.start(commands)
        setup.d3d12.finish()
    assert setup.world.complaints == []
    del kept


def test_an_initialiser_that_needs_nothing_is_still_run() -> None:
    setup = Setup(needs=lambda _: Needs(1), initialiser_needs=Needs(0))
    operator = setup.session.operator(GEMM)
    operator.prepare()
    setup.record(operator, setup.places(operator))
    assert setup.world.calls.count("IDMLCommandRecorder.RecordDispatch") == 2
    assert setup.world.complaints == []


def test_an_operator_is_compiled_and_initialised_once() -> None:
    setup = Setup()
    for _ in range(3):
        kernel = setup.session.kernel(GEMM)
        assert kernel is setup.session.kernel(every_operator(DType.F32)["gemm"])
        setup.session.operator(GEMM).prepare()
    assert (kernel.name, kernel.per_shape) == ("directml_gemm[f32]", True)
    assert setup.world.calls.count("IDMLDevice.CompileOperator") == 1
    assert setup.world.calls.count("IDMLDevice.CreateOperatorInitializer") == 1


def test_an_operator_that_cannot_compile_is_asked_for_once() -> None:
    setup = Setup(refuses=lambda seen: seen.kind == constant("OPERATOR_GEMM"))
    for _ in range(2):
        with pytest.raises(
            KernelUnsupported,
            match=r"directml_gemm\[f32\] 5x64x32 cannot be compiled: "
            r"IDMLDevice.CompileOperator returned E_NOTIMPL \(0x80004001\)\.",
        ):
            setup.session.kernel(GEMM)
    assert setup.world.calls.count("IDMLDevice.CompileOperator") == 1
    setup.session.kernel(every_operator(DType.F32)["softmax"])
    assert setup.world.complaints == []


def test_types_that_the_device_lacks() -> None:
    session = Setup(data_types=("FLOAT32",)).session
    assert session.supports(DType.F32)
    assert not session.supports(DType.F16)
    assert not session.supports(DType.BF16)


def test_everything_is_given_back() -> None:
    setup = Setup()
    for description in every_operator(DType.F32).values():
        operator = setup.session.operator(description)
        operator.prepare()
        commands, kept = setup.record(operator, setup.places(operator))
        setup.d3d12.start(commands)
        setup.d3d12.finish()
        _, places, held = kept
        for made in (*(place.resource for place in places), held):
            made.release()
        made = ComObject(commands.address, commands.interface, held.abi)
        made.release()
    setup.session.close()
    alive = [str(made.interface) for made in setup.world.alive]
    assert sorted(alive) == ["ID3D12DescriptorHeap", "ID3D12Device"], "what is the device's"
    assert all(made.references >= 0 for made in setup.world.objects.values())
    assert setup.world.complaints == []


@pytest.mark.parametrize("change", ["one less", "one more", "a small input", "a small output"])
def test_views_that_do_not_fit(change: str) -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    places = setup.places(operator)
    match change:
        case "one less":
            places.pop()
        case "one more":
            places.append(places[0])
        case "a small input":
            places[0] = Place(places[0].resource, 0, places[0].size - 4)
        case "a small output":
            places[2] = Place(places[2].resource, 0, places[2].size - 4)
    before = len(setup.world.calls)
    with pytest.raises(InvalidUse, match=r"directml_gemm\[f32\] 5x64x32> takes views of \[1280"):
        setup.record(operator, places)
    assert "IDMLCommandRecorder.RecordDispatch" not in setup.world.calls[before:]


def test_an_operator_is_not_recorded_before_it_is_initialised() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    with pytest.raises(InvalidUse, match="before it was initialised"):
        setup.record(operator, setup.places(operator))


def test_a_heap_has_the_right_number_of_descriptors() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    commands = setup.d3d12.com(setup.d3d12.command_list())
    with pytest.raises(InvalidUse, match="takes 4 descriptors"):
        operator.record(commands, setup.places(operator), DescriptorRange(0, 0, 3))


def test_what_a_list_that_never_ends_may_use_stays() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)

    def hang(record: Callable[[ComObject], None]) -> None:
        commands = setup.d3d12.command_list()
        record(setup.d3d12.com(commands))
        setup.d3d12.start(commands)
        raise TimeoutError

    setup.d3d12.run = hang  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        operator.prepare()
    assert setup.world.complaints == []


# What the fake must notice: each would remove the device, or worse.


def test_releasing_in_flight_is_noticed() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    commands, kept = setup.record(operator, setup.places(operator))
    setup.d3d12.start(commands)
    operator.release()
    complaints = " ".join(setup.world.complaints)
    assert "IDMLCompiledOperator> was released while" in complaints
    assert "ID3D12Resource> was released while" in complaints  # the persistent memory
    del kept


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ((DescriptorLoan, "set_on"), "no descriptor heap is set"),
        ((BindingTable, "bind_inputs"), "inputs were not bound"),
        ((BindingTable, "bind_outputs"), "persistent memory was not bound"),
        ((BindingTable, "bind_temporary"), "temporary memory was bound and not needed"),
        ((BindingTable, "bind_persistent"), "persistent memory was bound and not needed"),
    ],
)
def test_a_missing_step_is_noticed(
    monkeypatch: pytest.MonkeyPatch, broken: tuple[type, str], complaint: str
) -> None:
    monkeypatch.setattr(*broken, lambda *_: None)
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    setup.record(operator, setup.places(operator))
    assert complaint in " ".join(setup.world.complaints)


def test_inputs_that_are_left_out_without_a_word_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bind = BindingTable.bind_inputs
    monkeypatch.setattr(
        BindingTable,
        "bind_inputs",
        lambda table, places: bind(table, [place for place in places if place is not None]),
    )
    setup = Setup()
    operator = setup.session.operator(GEMM)  # without c
    operator.prepare()
    setup.record(operator, setup.places(operator))
    assert "the number of inputs is wrong" in " ".join(setup.world.complaints)


def test_descriptors_of_another_dispatch_are_not_overwritten() -> None:
    setup = Setup()
    operator = setup.session.operator(GEMM)
    operator.prepare()
    commands = setup.d3d12.com(setup.d3d12.command_list())
    loan = setup.d3d12.descriptors.lend(2 * operator.descriptors)
    loan.set_on(commands)
    ranges = [loan.take(operator.descriptors), loan.take(operator.descriptors)]
    for taken in ranges:
        operator.record(commands, setup.places(operator), taken)
    assert setup.world.complaints == []
    operator.record(commands, setup.places(operator), ranges[0])
    assert "descriptors of another dispatch" in " ".join(setup.world.complaints)
