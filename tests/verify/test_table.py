"""The whole table on a device that fails, and known failures that are tried again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest
from tests.faulty_backend import FaultyBackend

from crossinfer.backends.reference import ReferenceDevice
from crossinfer.core.errors import DeviceLost
from crossinfer.graph.ops.linear import Linear
from crossinfer.hal.faults import Fault, FaultKind
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.kernel import Kernel, Lowering, OpDescription, Operand
from crossinfer.hal.known_failures import KNOWN_FAILURES, KnownFailure
from crossinfer.hal.registry import list_devices, open_device
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify.cases import cases_of
from crossinfer.verify.table import TableRun, known_cases

GPU = DeviceInfo("d3d12", DeviceKind.DISCRETE_GPU, "a card", "1.0")
SHAPE = "x 5x64, weight 32x64, output 5x32"


class WithGemm(ReferenceDevice):
    """Offers a library's product first, and a kernel of its own."""

    def lower(self, op: OpDescription, operands: Mapping[str, Operand]) -> Sequence[Lowering]:
        (found,) = super().lower(op, operands)
        if not isinstance(op, Linear) or operands["weight"].storage.label not in ("f32", "f16"):
            return (found,)
        (run,) = found.dispatches
        name = f"directml_gemm[{operands['weight'].storage.label}]"
        kernel = Kernel(name, run.kernel.handle, per_shape=True)
        return (Lowering((dataclasses.replace(run, kernel=kernel),)), found)


def backend_with(*faults: Fault) -> FaultyBackend:
    return FaultyBackend(faults, WithGemm, GPU)


def test_the_table_goes_on_after_a_loss() -> None:
    store = VerdictStore(None)
    backend = backend_with(Fault(FaultKind.LOST, "swiglu", 2))
    with TableRun(lambda: backend.open_device(0), store) as run:
        outcomes = run.run(cases_of("swiglu", "argmax"))
    assert [outcome.passed for outcome in outcomes].count(False) == 1
    assert len(outcomes) == len(cases_of("swiglu", "argmax"))
    assert store.is_barred(GPU, "swiglu")
    assert not store.is_barred(GPU, "argmax")
    assert len(backend.opened) == 2
    assert all(device._closed for device in backend.opened)


def test_a_device_that_is_always_lost_ends_the_table() -> None:
    store = VerdictStore(None)
    backend = backend_with(Fault(FaultKind.LOST, "linear", always=True))
    with (
        TableRun(lambda: backend.open_device(0), store) as run,
        pytest.raises(DeviceLost),
    ):
        run.run(cases_of("linear[q4_0]"))
    assert store.is_barred(GPU, "linear[q4_0]")


def test_a_known_failure_that_still_fails_stays_barred() -> None:
    store = VerdictStore(None, KNOWN_FAILURES)
    fault = Fault(FaultKind.LOST, "directml_gemm", shape="x 5x64, weight 32x64", always=True)
    backend = backend_with(fault)
    with TableRun(lambda: backend.open_device(0), store) as run:
        (known,) = run.run_known()
    assert not known.is_cured
    assert [outcome.kernels for outcome in known.outcomes] == [
        ("directml_gemm[f32]",),
        ("directml_gemm[f16]",),
    ]
    assert fault.seen == 2
    assert store.is_barred(GPU, "directml_gemm[f32]", SHAPE)


def test_a_known_failure_that_passes_is_cured_here() -> None:
    store = VerdictStore(None, KNOWN_FAILURES)
    assert store.is_barred(GPU, "directml_gemm[f32]", SHAPE)
    backend = backend_with()
    with TableRun(lambda: backend.open_device(0), store) as run:
        (known,) = run.run_known()
    assert known.is_cured
    assert not store.is_barred(GPU, "directml_gemm[f32]", SHAPE)
    assert not store.is_barred(GPU, "directml_gemm[f16]", SHAPE)


def test_a_device_without_the_kernel_cures_nothing() -> None:
    store = VerdictStore(None, KNOWN_FAILURES)
    backend = FaultyBackend((), ReferenceDevice, GPU)
    with TableRun(lambda: backend.open_device(0), store) as run:
        (known,) = run.run_known()
    assert known.outcomes == ()
    assert not known.is_cured


@pytest.mark.parametrize("row", KNOWN_FAILURES, ids=lambda row: f"{row.backend}-{row.kernel}")
def test_every_known_failure_is_still_one(row: KnownFailure) -> None:
    """Fails where one is cured: then its row ends at the driver before."""
    concerned = [info for info in list_devices() if row.concerns(info)]
    if not concerned:
        pytest.skip("no such device is here")
    for info in concerned:
        store = VerdictStore(None, [row])
        with TableRun(lambda: open_device(info.name), store) as run:  # noqa: B023
            for known in run.run_known():
                assert not known.is_cured, f"{row} is cured on {info}"


@pytest.mark.parametrize("row", KNOWN_FAILURES, ids=lambda row: f"{row.backend}-{row.kernel}")
def test_every_known_failure_has_cases(row: KnownFailure) -> None:
    cases = list(known_cases(row))
    assert {case.variant for case in cases} >= {"linear[f32]", "linear[f16]"}
