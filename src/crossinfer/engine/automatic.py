"""What `auto` takes for a model: a GPU that verifies, fits and pays, with the CPU behind it; or the
CPU.

A discrete GPU is taken if enough of the model fits into its memory: what does not goes to the CPU,
and each layer that the GPU has is one that the slower memory is spared. An integrated GPU reads the
same memory as the CPU, so which is faster is measured.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from crossinfer.core.errors import DeviceError, PlanError
from crossinfer.engine.device_row import Choice, Opened
from crossinfer.engine.verification import Verifier
from crossinfer.formats.blocks import StorageType
from crossinfer.hal.buffer import Role
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceInfo, DeviceKind
from crossinfer.hal.registry import automatic_device, automatic_gpus, gpu_backends, open_device
from crossinfer.hal.verdicts import Finding, VerdictStore
from crossinfer.plan.placement import packed_bytes
from crossinfer.plan.plan import Plan

LEAST_SHARE = 0.25
"""Of the weights, so much must be on a GPU: less saves less time than its memory is worth."""
MOST_CROSSINGS = 3
"""From one device to the other in a step: a model that is divided has so many at most (embedding,
layers, head), one whose layers go to and fro has more."""

# What may end the process before any kernel runs, named like kernels in the verdicts.
_SEARCH = "search for devices"
_OPENING = "opening of the device"

PlanOn = Callable[[list[Device]], Plan]
"""The plan of a step that generates one token, on these devices."""


def open_automatic(
    threads: int | None, plan_on: PlanOn, verdicts: VerdictStore, verifier: Verifier
) -> Choice:
    """Open what `auto` stands for. Raises DeviceError if there is nothing."""
    reasons: list[str] = []
    gpus = _find_gpus(verdicts, reasons)
    host_name = automatic_device()
    host = open_device(host_name, threads=threads)
    try:
        for info in gpus:
            if verdicts.is_barred(info, _OPENING):
                reasons.append(_crash_reason(info.name))
                continue
            gpu, reason = _try_gpu(info, host, plan_on, verdicts, verifier)
            if gpu is not None:
                return Choice([Opened(gpu, info.name), Opened(host, host_name)], reasons)
            reasons.append(f"auto does not take {info.name} ({info.description}): {reason}")
    except BaseException:
        host.close()
        raise
    return Choice([Opened(host, host_name)], reasons)


def _find_gpus(verdicts: VerdictStore, reasons: list[str]) -> list[DeviceInfo]:
    """The GPUs of the backends whose drivers do not end the process when they are asked."""
    found: list[DeviceInfo] = []
    for backend in gpu_backends():
        anyone = DeviceInfo(backend, DeviceKind.DISCRETE_GPU, "", "")
        if verdicts.is_barred(anyone, _SEARCH):
            reasons.append(_crash_reason(backend))
            continue
        with _attempt(verdicts, anyone, _SEARCH):
            found += automatic_gpus([backend])
    return sorted(found, key=lambda info: info.kind is not DeviceKind.DISCRETE_GPU)


@contextlib.contextmanager
def _attempt(verdicts: VerdictStore, info: DeviceInfo, what: str) -> Iterator[None]:
    """Should the process end within the context for the second time, `what` is barred."""
    with verdicts.attempt() as attempt:
        attempt.note(verdicts.note_of(info, [Finding(what)]))
        yield
    if verdicts.ended_once(info, what):
        verdicts.record(info, what, passed=True)


def _crash_reason(name: str) -> str:
    return (
        f"auto does not take {name}: its driver ended the process twice; after an update of the "
        f"driver, `crossinfer verify --device {name} --forget` tries again."
    )


def _try_gpu(
    info: DeviceInfo, host: Device, plan_on: PlanOn, verdicts: VerdictStore, verifier: Verifier
) -> tuple[Device | None, str]:
    """The GPU, opened, if it is to be taken; or why not."""
    with contextlib.ExitStack() as stack:
        try:
            with _attempt(verdicts, info, _OPENING):
                gpu = stack.enter_context(open_device(info.name))
            plan = verifier.settle(lambda: plan_on([gpu, host]))
            reason = _against(plan) or _against_speed(gpu, host, plan, verdicts)
        except (DeviceError, PlanError) as error:  # a driver that fails must not end the program
            return None, str(error)
        if not reason:
            stack.pop_all()
            return gpu, ""
    return None, reason


def _against(plan: Plan) -> str:
    """What in the plan speaks against the GPU, which comes first in its row."""
    weights = [
        sum(packed_bytes(tensor, device) for tensor in plan.constants_on(number))
        for number, device in enumerate(plan.devices)
    ]
    share = weights[0] / max(1, sum(weights))
    if share < LEAST_SHARE:
        why = f" ({plan.split.reason})" if plan.split.reason else ""
        return f"only {share:.0%} of the weights would be there{why}."
    # Streamed layers have segments of their own on one device.
    crossings = sum(a.device != b.device for a, b in itertools.pairwise(plan.segments))
    if crossings > MOST_CROSSINGS:
        why = next((s.reason for segment in plan.segments for s in segment.steps if s.reason), "")
        return f"each token would go to and fro {crossings} times ({why})."
    return ""


def _against_speed(gpu: Device, host: Device, plan: Plan, verdicts: VerdictStore) -> str:
    if gpu.info.kind is not DeviceKind.INTEGRATED_GPU:
        return ""
    from crossinfer.verify.speed import decode_seconds  # for those few who have such a GPU

    storage = _usual_storage(plan)
    on_gpu, on_host = (decode_seconds(device, storage, verdicts) for device in (gpu, host))
    if on_gpu < on_host:
        return ""
    return (
        f"it takes {on_gpu * 1e3:.3g} ms for a product with {storage.label} weights that takes "
        f"{host.info.name} {on_host * 1e3:.3g} ms."
    )


def _usual_storage(plan: Plan) -> StorageType:
    """The storage of the most bytes of weights that are multiplied."""
    total: Counter[StorageType] = Counter()
    for storage, size in _matrices(plan):
        total[storage] += size
    return total.most_common(1)[0][0]


def _matrices(plan: Plan) -> Iterator[tuple[StorageType, int]]:
    for number in range(len(plan.devices)):
        for tensor in plan.constants_on(number):
            if tensor.type.role is Role.WEIGHT:
                yield tensor.type.storage, tensor.type.storage.bytes_for(tensor.type.shape)
