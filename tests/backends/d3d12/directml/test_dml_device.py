"""Operators on a real Direct3D 12 device, between kernels of ours. What they compute comes from a
DirectML whose dispatches are shaders of the tests (`computing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from tests.backends.d3d12.directml.computing import ComputingDirectML, install_directml
from tests.backends.d3d12.directml.dml_setup import every_operator
from tests.backends.d3d12.directml.fake_directml import Behaviour
from tests.backends.d3d12.directml.layouts import constant
from tests.backends.d3d12.directml.test_dml_lowering import linear_operands

from crossinfer.backends.d3d12 import D3D12Device, open_d3d12
from crossinfer.backends.d3d12.commands import CommandList
from crossinfer.backends.d3d12.constants import State
from crossinfer.backends.d3d12.directml import attach, gemm_smoke
from crossinfer.backends.d3d12.directml.descriptions import Description
from crossinfer.backends.d3d12.directml.trial import try_operator
from crossinfer.backends.d3d12.encode import PART_COMMANDS
from crossinfer.backends.d3d12.memory import allocation_of
from crossinfer.backends.d3d12.states import BarrierRecord, Transition, UavBarrier
from crossinfer.core.dtypes import Array, DType
from crossinfer.core.errors import KernelUnsupported
from crossinfer.formats.table_formats import Q8_32
from crossinfer.graph.op import float32
from crossinfer.graph.ops.gated_linear import GatedLinear
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.buffer import Role, View
from crossinfer.hal.kernel import Operand
from crossinfer.verify.case import Case
from crossinfer.verify.cases_linear import linear_cases
from crossinfer.verify.runner import run_lowering

OPERATORS = [
    pytest.param(description, id=f"{name} {dtype.label}")
    for dtype in (DType.F32, DType.F16)
    for name, description in every_operator(dtype).items()
]
CASES = [case for case in linear_cases() if case.inputs["weight"].storage in (DType.F32, DType.F16)]


@pytest.fixture
def device(directml: ComputingDirectML) -> Iterator[D3D12Device]:
    with open_d3d12() as opened:
        yield opened
    assert directml.world.alive == [], "the device has let go of everything"


@pytest.fixture(scope="module")
def shared_device() -> Iterator[D3D12Device]:
    """One device for tests that only compute on it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = install_directml(monkeypatch)
        with open_d3d12() as opened:
            yield opened
        assert made.world.complaints == []


@pytest.mark.parametrize("description", OPERATORS)
def test_an_operator(shared_device: D3D12Device, description: Description) -> None:
    assert shared_device.directml is not None
    session, rng = shared_device.directml.session, np.random.default_rng()
    trial = try_operator(shared_device, session, description, rng)
    assert trial.passed, trial


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_linear(shared_device: D3D12Device, case: Case) -> None:
    lowerings = [
        lowering
        for lowering in shared_device.lower(case.op, case.operands())
        if any(name.startswith("directml_gemm") for name in lowering.kernel_names)
    ]
    assert len(lowerings) == ("gate" not in case.inputs)
    for lowering in lowerings:
        stored = case.make(np.random.default_rng())
        outcome = run_lowering(shared_device, case, lowering, stored)
        assert outcome.passed, outcome.reason
        assert outcome.per_shape == set(outcome.kernels)


def test_operators_between_our_kernels_in_a_long_recording(device: D3D12Device) -> None:
    """A chain of products, each the next one's x; every part of the recording sets its heap."""
    rng, size, steps = np.random.default_rng(), 24, 3 * PART_COMMANDS
    operands = linear_operands(1, size, size)
    x = rng.standard_normal((1, size)).astype(np.float32)
    weight, _ = np.linalg.qr(rng.standard_normal((size, size)))
    weight = np.ascontiguousarray(weight, np.float32)
    views = {
        "weight": device.upload(weight, (size, size), DType.F32, Role.WEIGHT).view(),
        "a": device.upload(x, (1, size), DType.F32).view(),
        "b": device.alloc((1, size), DType.F32).view(),
    }
    theirs, ours, *_ = device.lower(Linear(), operands)
    assert theirs.kernel_names == ("directml_gemm[f32]",)
    for name, bytes_ in theirs.scratch.items():
        views[name] = device.alloc((bytes_ // 4,), DType.I32).view()
    recorder = device.recorder()
    for step in range(steps):
        lowering = (theirs, ours, theirs)[step % 3]  # two operators in a row, then a kernel
        source, target = ("a", "b") if step % 2 == 0 else ("b", "a")
        bound = {**views, "x": views[source], "output": views[target]}
        for dispatch in lowering.bind(bound):
            recorder.dispatch(dispatch)
    recording = recorder.finish()
    expected = x.astype(np.float64)
    for _ in range(3):
        device.submit(recording).wait()
        for _ in range(steps):
            expected = expected @ weight.astype(np.float64).T
        result = read(device, views["a"], (1, size))
        np.testing.assert_allclose(result, expected, atol=1e-3)


def test_what_operators_read_goes_through_uavs(
    device: D3D12Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    barriers: list[list[BarrierRecord]] = []
    monkeypatch.setattr(CommandList, "barriers", lambda _, records: barriers.append(list(records)))
    operands = linear_operands(1, 24, 24)
    views = {
        name: device.alloc(o.shape, o.storage, o.role, name).view() for name, o in operands.items()
    }
    theirs, ours, *_ = device.lower(Linear(), operands)
    for name, size in theirs.scratch.items():
        views[name] = device.alloc((size // 4,), DType.I32).view()
    again = {**views, "x": views["output"], "output": views["x"]}
    recorder = device.recorder()
    for lowering, bound in ((ours, views), (theirs, views), (theirs, again), (ours, again)):
        for dispatch in lowering.bind(bound):
            recorder.dispatch(dispatch)
    recorder.finish()
    x, weight, output, temporary = (
        allocation_of(views[name].buffer).resource.address
        for name in ("x", "weight", "output", *theirs.scratch)
    )
    reads, unordered = State.NON_PIXEL_SHADER_RESOURCE, State.UNORDERED_ACCESS
    assert [set(records) for records in barriers[-4:]] == [
        set(),  # all promote from COMMON
        {
            Transition(x, reads, unordered),
            Transition(weight, reads, unordered),
            UavBarrier(output),
        },
        {UavBarrier(x), UavBarrier(output), UavBarrier(temporary)},
        {
            Transition(output, unordered, reads),
            Transition(weight, unordered, reads),
            UavBarrier(x),
        },
    ]


def read(device: D3D12Device, view: View, shape: tuple[int, int]) -> Array:
    count = shape[0] * shape[1]
    return np.frombuffer(device.download(view), np.float32)[:count].reshape(shape)


def names(device: D3D12Device, operands: Mapping[str, Operand]) -> list[str]:
    return [lowering.kernel_names[0] for lowering in device.lower(Linear(), operands)]


def test_the_setting_decides_who_comes_first(
    directml: ComputingDirectML, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = linear_operands(5, 32, 64)
    for setting in ("on", "auto", "off"):
        monkeypatch.setenv("CROSSINFER_DIRECTML", setting)
        with open_d3d12() as device:
            offered = names(device, operands)
        places = [n for n, name in enumerate(offered) if name == "directml_gemm[f32]"]
        assert places == {"on": [0], "auto": [len(offered) - 1], "off": []}[setting]
    monkeypatch.delenv("CROSSINFER_DIRECTML")
    before = len(directml.world.objects)
    with open_d3d12():
        pass
    assert len(directml.world.objects) == before, "nothing of DirectML was made"


def test_joined_products_are_left_apart_where_directml_could_run_them(
    device: D3D12Device,
) -> None:
    weight = Operand((32, 64), DType.F32, Role.WEIGHT)
    quantized = Operand((32, 64), Q8_32, Role.WEIGHT)
    operands = {"x": float32(5, 64), "output": float32(5, 32)}
    both = {"gate_weight": weight, "up_weight": weight}
    mixed = {"gate_weight": weight, "up_weight": quantized}
    assert device.lower(GatedLinear(), operands | both) == ()
    assert device.lower(GatedLinear(), operands | mixed) != ()


def test_a_library_that_is_asked_for_must_be_there(
    directml: ComputingDirectML, monkeypatch: pytest.MonkeyPatch
) -> None:
    del directml
    monkeypatch.setattr(attach, "find_library", lambda _: None)
    with pytest.raises(KernelUnsupported, match="DirectML is asked for and cannot be used: there"):
        open_d3d12()
    monkeypatch.setenv("CROSSINFER_DIRECTML", "auto")
    with open_d3d12() as device:
        assert device.directml is None


# The command.


def smoke(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = gemm_smoke.main(arguments)
    return code, capsys.readouterr().out


def test_smoke_of_every_operator(
    directml: ComputingDirectML, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = smoke(capsys, "--all", "--m", "3")
    assert code == 0
    lines = [line for line in printed.splitlines() if line.startswith("directml_")]
    assert len(lines) == len(OPERATORS)
    assert all(line.endswith(": ok") and ", limit " in line for line in lines)
    assert "directml_gemm[f16]       3x64x32" in printed
    assert len(directml.dispatched) == len(OPERATORS)
    assert directml.world.alive == []


def test_smoke_of_a_wrong_operator(
    directml: ComputingDirectML,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del directml
    monkeypatch.setattr("crossinfer.backends.d3d12.directml.trial._POISON", 0)
    monkeypatch.setattr(
        "crossinfer.backends.d3d12.directml.operator.DmlOperator.record", lambda *_: None
    )
    code, printed = smoke(capsys)
    assert code == 1
    assert "error 1, limit 1e-05: WRONG" in printed


def test_smoke_where_no_operator_compiles(
    directml: ComputingDirectML, capsys: pytest.CaptureFixture[str]
) -> None:
    gemm = constant("OPERATOR_GEMM")
    directml.behaviour = Behaviour(refuses=lambda seen: seen.kind == gemm)
    code, printed = smoke(capsys)
    assert code == 2
    assert "cannot be compiled: IDMLDevice.CompileOperator returned E_NOTIMPL" in printed
    assert printed.endswith("No operator compiles on this device.\n")


def test_smoke_without_directml(
    directml: ComputingDirectML,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del directml
    monkeypatch.setenv("CROSSINFER_DIRECTML", "off")
    monkeypatch.setattr(attach, "find_library", lambda _: None)
    code, printed = smoke(capsys)
    assert code == 2
    assert "there is no DirectML library here" in printed
