"""How cases are run and judged, and which verdicts follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.dtypes import Array
from crossinfer.formats.activations import ActivationBlocks
from crossinfer.graph.ops.linear import Linear
from crossinfer.graph.ops.swiglu import Swiglu
from crossinfer.hal.device import Device
from crossinfer.hal.faults import Fault, FaultKind, FaultyDevice
from crossinfer.hal.fence import Fence
from crossinfer.hal.kernel import Kernel, Lowering, OpDescription, Operand
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify.case import Case
from crossinfer.verify.cases import all_cases, cases_of
from crossinfer.verify.runner import Outcome, findings, run_case


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def device() -> Iterator[ReferenceDevice]:
    with ReferenceDevice() as opened:
        yield opened


class TwoWayDevice(ReferenceDevice):
    """Offers a way that computes nothing, and the right one."""

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        (right,) = super().lower(op, operands)
        return (Lowering((), {"partial": 100}), _renamed(right, f"fast_{op.name}"), right)


def _renamed(lowering: Lowering, name: str) -> Lowering:
    (lowered,) = lowering.dispatches
    kernel = Kernel(name, lowered.kernel.handle)
    return Lowering((dataclasses.replace(lowered, kernel=kernel),))


def test_every_lowering_is_run(rng: np.random.Generator) -> None:
    case = cases_of("swiglu")[1]
    with TwoWayDevice() as device:
        nothing, fast, right = run_case(device, case, rng)
        assert device.memory_in_use == 0
    assert (nothing.kernels, fast.kernels, right.kernels) == ((), ("fast_swiglu",), ("swiglu",))
    assert not nothing.passed
    assert nothing.reason.startswith(f"{case.name}: output is wrong by inf, and 1e-05 is allowed.")
    assert fast.passed
    assert right.passed
    assert fast.reason == ""
    assert 0 < fast.error < 1e-6


BLOCKS = ActivationBlocks(32)


class QuantizedLinear(Linear):
    def compute(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return super().compute({**inputs, "x": BLOCKS.round(inputs["x"])})


class QuantizingDevice(ReferenceDevice):
    """Computes linear over quantized activations, and says so or not."""

    def __init__(self, *, admits: bool) -> None:
        super().__init__()
        self._quantized = {"x": BLOCKS} if admits else {}

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        del op
        (lowering,) = super().lower(QuantizedLinear(), operands)
        return (dataclasses.replace(lowering, quantized=self._quantized),)


@pytest.mark.parametrize("admits", [True, False])
def test_a_kernel_that_rounds_its_input_is_judged_by_what_it_says(
    rng: np.random.Generator, admits: bool
) -> None:
    with QuantizingDevice(admits=admits) as device:
        for case in cases_of("linear[q4_1]"):
            (outcome,) = run_case(device, case, rng)
            assert outcome.passed == admits, case.name


def test_no_kernel_no_outcome(rng: np.random.Generator) -> None:
    with ReferenceDevice(lacks=["swiglu"]) as device:
        assert run_case(device, cases_of("swiglu")[0], rng) == []


def verify(device: Device, cases: Iterable[Case], store: VerdictStore) -> list[Outcome]:
    """Run cases and keep the verdicts that follow."""
    rng = np.random.default_rng()
    outcomes = [outcome for case in cases for outcome in run_case(device, case, rng)]
    store.record_all(device.info, findings(outcomes))
    return outcomes


def test_verdicts_are_recorded(device: ReferenceDevice) -> None:
    store = VerdictStore(None)
    outcomes = verify(device, all_cases(), store)
    assert len(outcomes) == len(all_cases())
    assert all(outcome.passed for outcome in outcomes)
    assert {verdict.kernel for verdict in store.all()} == {case.variant for case in all_cases()}
    assert all(verdict.passed for verdict in store.all())
    assert device.memory_in_use == 0


def test_one_failure_bars_the_kernel() -> None:
    store = VerdictStore(None)
    fault = Fault(FaultKind.WRONG_RESULT, "linear[q4_1]", at=3)
    with FaultyDevice(ReferenceDevice(), [fault]) as device:
        outcomes = verify(device, cases_of("linear[q4_1]", "swiglu"), store)
        failed = [number for number, outcome in enumerate(outcomes) if not outcome.passed]
        assert failed == [2]
        assert store.is_barred(device.info, "linear[q4_1]")
        verdict = store.find(device.info, "linear[q4_1]")
        assert verdict is not None
        assert verdict.reason == outcomes[2].reason
        assert not store.is_barred(device.info, "swiglu")


def test_a_later_pass_lifts_the_bar(device: ReferenceDevice) -> None:
    store = VerdictStore(None)
    store.record(device.info, "swiglu", passed=False, reason="an older driver")
    verify(device, cases_of("swiglu"), store)
    assert not store.is_barred(device.info, "swiglu")


def test_a_hang_is_a_failure() -> None:
    inner = ReferenceDevice(deadline_s=0.05)
    with FaultyDevice(inner, [Fault(FaultKind.HANG, "argmax")]) as device:
        outcomes = verify(device, cases_of("argmax")[:1], VerdictStore(None))
        assert "no answer within 0.05 seconds" in outcomes[0].reason


def test_a_lack_of_memory_is_no_verdict() -> None:
    store = VerdictStore(None)
    with ReferenceDevice(memory_bytes=4096) as device:
        outcomes = verify(device, cases_of("swiglu"), store)
        assert [outcome.passed for outcome in outcomes] == [True, False, False, False]
        assert [outcome.conclusive for outcome in outcomes] == [True, False, False, False]
        assert store.find(device.info, "swiglu") is not None
        assert device.memory_in_use == 0
    with ReferenceDevice(memory_bytes=256) as device:
        verify(device, cases_of("argmax"), store)
        assert store.find(device.info, "argmax") is None


def test_an_op_that_computes_nothing_is_found(rng: np.random.Generator) -> None:
    """Whatever the op and its outputs, poison is not taken for a result."""
    for case in all_cases():
        with IdleDevice() as device:
            (outcome,) = run_case(device, case, rng)
        assert not outcome.passed, case.name


class IdleDevice(ReferenceDevice):
    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        del op, operands
        return (Lowering(()),)


def test_cases_of() -> None:
    assert {type(case.op) for case in cases_of("swiglu")} == {Swiglu}
    assert {case.variant for case in cases_of("linear[q4_1]")} == {"linear[q4_1]"}
    assert cases_of("nothing") == ()


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupt_ends_a_trial_when_its_memory_is_free(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, interrupts: int
) -> None:
    """What frees the memory must not hide the interrupt by an error of its own."""
    waits: list[Fence] = []
    inner = ReferenceDevice(deadline_s=0.5)
    device = FaultyDevice(inner, [Fault(FaultKind.HANG, "")])

    def interrupted(fence: Fence, timeout_s: float | None = None) -> None:
        del timeout_s
        waits.append(fence)
        if len(waits) <= interrupts:
            raise KeyboardInterrupt
        fence.signal()

    with device, monkeypatch.context() as patch:
        patch.setattr(Fence, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_case(device, cases_of("swiglu")[1], rng)
        assert (device.lost is not None) == (interrupts == 2)
        assert device.lost is not None or device.memory_in_use == 0
