"""Runs cases on a device and judges the kernels that it offers for them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceError, OutOfDeviceMemory
from crossinfer.graph.tolerance import row_error
from crossinfer.hal.device import Device
from crossinfer.hal.kernel import Lowering
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.verify.case import Case, Stored
from crossinfer.verify.data import Random
from crossinfer.verify.memory import NAN_BYTE, OperandMemory, poisoned, scratch_memory

Memory = Mapping[str, OperandMemory]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one way to run a case went."""

    case: str
    kernels: tuple[str, ...]
    passed: bool
    error: float
    """The largest row_error of any output; infinite if it could not be compared."""
    reason: str = ""
    conclusive: bool = True
    """False if the kernels are not to blame: the device had no memory for the case."""


def run_case(device: Device, case: Case, rng: Random) -> list[Outcome]:
    """One outcome for each lowering that the device offers; none if it has no kernel.

    Every lowering gets the same fresh inputs. Outputs and scratch memory are poisoned before, and
    the memory around all tensors is watched. Errors of the device are failures, not raised.
    """
    stored = case.make(rng)
    lowerings = device.lower(case.op, case.operands())
    return [
        _run(device, case, lowering, stored, case.expected(stored, lowering.quantized))
        for lowering in lowerings
    ]


def verify_device(
    device: Device, cases: Iterable[Case], store: VerdictStore, rng: Random | None = None
) -> list[Outcome]:
    """Run cases and record the verdict on every kernel that ran.

    A kernel passes if all its cases do. Of a lowering that fails, all kernels are barred, since
    nothing tells which one is wrong. Ends early if the device is lost.
    """
    rng = np.random.default_rng() if rng is None else rng
    outcomes: list[Outcome] = []
    for case in cases:
        outcomes += run_case(device, case, rng)
        if device.lost is not None:
            break
    reasons: dict[str, str] = {}
    for outcome in outcomes:
        for kernel in outcome.kernels if outcome.conclusive else ():
            reasons[kernel] = reasons.get(kernel) or outcome.reason
    for kernel, reason in reasons.items():
        store.record(device.info, kernel, passed=not reason, reason=reason)
    return outcomes


def _run(
    device: Device, case: Case, lowering: Lowering, stored: Stored, expected: Mapping[str, Array]
) -> Outcome:
    memory: dict[str, OperandMemory] = {}
    faults: list[str] = []
    error, conclusive = math.inf, True
    try:
        _allocate(device, case, lowering, stored, expected, memory)
        _execute(device, lowering, memory)
        error, faults = _judge(case, stored, expected, memory)
    except OutOfDeviceMemory as failure:
        faults, conclusive = [str(failure)], False
    except DeviceError as failure:
        faults = [str(failure)]
    finally:
        for operand in memory.values():
            operand.free()
    reason = f"{case.name}: {' '.join(faults)}" if faults else ""
    return Outcome(case.name, lowering.kernel_names, not faults, error, reason, conclusive)


def _allocate(
    device: Device,
    case: Case,
    lowering: Lowering,
    stored: Stored,
    expected: Mapping[str, Array],
    memory: dict[str, OperandMemory],
) -> None:
    for name, operand in case.inputs.items():
        memory[name] = OperandMemory(device, operand, stored[name], NAN_BYTE)
    for name, operand in case.outputs().items():
        memory[name] = poisoned(device, operand, expected[name])
    for name, size in lowering.scratch.items():
        memory[name] = scratch_memory(device, size)


def _execute(device: Device, lowering: Lowering, memory: Memory) -> None:
    recorder = device.recorder()
    for dispatch in lowering.bind({name: operand.view for name, operand in memory.items()}):
        recorder.dispatch(dispatch)
    device.submit(recorder.finish()).wait()


def _judge(
    case: Case, stored: Stored, expected: Mapping[str, Array], memory: Memory
) -> tuple[float, list[str]]:
    """The largest error, and what is wrong, in sentences."""
    worst, faults = 0.0, []
    before = case.values(stored)
    for name, wanted in expected.items():
        part = case.defined(name, stored)
        result = memory[name].values()[part]
        error, limit = row_error(result, wanted[part]), case.tolerance(name).value
        worst = max(worst, error)
        if error > limit:
            faults.append(f"{name} is wrong by {error:.2g}, and {limit:.2g} is allowed.")
        elif name in before:
            kept = _equal(wanted[part], before[name][part])
            if not np.all(_equal(result, before[name][part])[kept]):
                faults.append(f"It changed elements of {name} that were to stay as they are.")
    for name, operand in memory.items():
        if name in case.inputs and name not in expected:
            if not operand.is_unchanged():
                faults.append(f"It changed the input {name}, or memory beside it.")
        elif not operand.is_unchanged(outside_only=True):
            faults.append(f"It wrote outside of {name}.")
    return worst, faults


def _equal(a: Array, b: Array) -> Array:
    same: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return same
