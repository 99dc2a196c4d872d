"""Runs cases on a device and judges the kernels that it offers for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from crossinfer.core.dtypes import Array
from crossinfer.core.errors import DeviceError, KernelUnsupported, OutOfDeviceMemory
from crossinfer.core.records import record
from crossinfer.graph.tolerance import Tolerance, row_error
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceKind
from crossinfer.hal.kernel import Lowering, shape_text
from crossinfer.hal.verdicts import Finding
from crossinfer.verify.case import Case, Stored
from crossinfer.verify.data import Random
from crossinfer.verify.memory import NAN_BYTE, OperandMemory, poisoned, scratch_memory

Memory = Mapping[str, OperandMemory]

_DEADLINE_S = 20.0
"""How long a case may take on a GPU: they are small, and whoever starts a model waits for them."""
_SOFTWARE_DEADLINE_S = 120.0
"""On what shares the CPU with everything else."""
_SOFTWARE = (DeviceKind.CPU, DeviceKind.SOFTWARE_GPU, DeviceKind.REFERENCE, DeviceKind.SIMULATED)


@record
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
    shape: str = ""
    """The operands' shapes (see `hal.kernel.shape_text`)."""
    per_shape: frozenset[str] = frozenset()
    """Those of the kernels on which the case tells nothing about other shapes."""
    lasting: bool = True
    """False if it may be otherwise in the next process: a kernel could not be compiled."""


def run_case(device: Device, case: Case, rng: Random) -> list[Outcome]:
    """One outcome for each lowering that the device offers; none if it has no kernel.

    Every lowering gets the same fresh inputs. Outputs and scratch memory are poisoned before, and
    the memory around all tensors is watched. Errors of the device are failures, not raised.
    """
    stored = case.make(rng)
    lowerings = device.lower(case.op, case.operands())
    return [run_lowering(device, case, lowering, stored) for lowering in lowerings]


def findings(outcomes: Iterable[Outcome]) -> list[Finding]:
    """The verdicts that follow.

    A kernel passes if all its cases do; one that its driver makes anew for each shape has a verdict
    for each. Of a lowering that fails, all kernels are barred, since nothing tells which is wrong.
    """
    found: dict[tuple[str, str], Finding] = {}
    for outcome in outcomes:
        for kernel in outcome.kernels if outcome.conclusive else ():
            shape = outcome.shape if kernel in outcome.per_shape else ""
            before = found.get((kernel, shape))
            if before is None or not before.reason:
                finding = Finding(kernel, outcome.reason, shape, outcome.lasting)
                found[kernel, shape] = finding
    return list(found.values())


def run_lowering(device: Device, case: Case, lowering: Lowering, stored: Stored) -> Outcome:
    """How one way to run a case on these inputs went; see `run_case`."""
    expected = case.expected(stored, lowering.quantized)
    memory: dict[str, OperandMemory] = {}
    faults: list[str] = []
    error, conclusive, lasting = math.inf, True, True
    try:
        _allocate(device, case, lowering, stored, expected, memory)
        _execute(device, case, lowering, memory)
        error, faults = _judge(case, stored, expected, memory, lowering.in_half)
    except OutOfDeviceMemory as failure:
        faults, conclusive = [str(failure)], False
    except KernelUnsupported as failure:
        faults, lasting = [str(failure)], False
    except DeviceError as failure:
        faults = [str(failure)]
    finally:
        for operand in memory.values():
            operand.free()
    reason = f"{case.name}: {' '.join(faults)}" if faults else ""
    return Outcome(
        case.name,
        lowering.kernel_names,
        not faults,
        error,
        reason,
        conclusive,
        shape_text(case.operands()),
        frozenset(d.kernel.name for d in lowering.dispatches if d.kernel.per_shape),
        lasting,
    )


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


def _execute(device: Device, case: Case, lowering: Lowering, memory: Memory) -> None:
    recorder = device.recorder()
    views = {name: operand.view for name, operand in memory.items()}
    for dispatch in lowering.bind(views, case.variant, shape_text(case.operands())):
        recorder.dispatch(dispatch)
    limit = _SOFTWARE_DEADLINE_S if device.info.kind in _SOFTWARE else _DEADLINE_S
    device.submit(recorder.finish()).wait_through(min(device.deadline_s, limit))


def _judge(
    case: Case, stored: Stored, expected: Mapping[str, Array], memory: Memory, in_half: bool
) -> tuple[float, list[str]]:
    """The largest error, and what is wrong, in sentences."""
    worst, faults = 0.0, []
    before = {name: case.values(stored, name) for name in case.updated()}
    for name, wanted in expected.items():
        part = case.defined(name, stored)
        result = memory[name].values()[part]
        allowed = case.tolerance(name)
        if in_half and allowed is Tolerance.F32:
            allowed = Tolerance.HALF
        error, limit = row_error(result, wanted[part]), allowed.value
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
