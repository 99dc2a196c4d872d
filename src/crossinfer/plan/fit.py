"""The split that a model gets: what its largest step needs is left free on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crossinfer.graph.graph import Graph
from crossinfer.hal.device import Device
from crossinfer.hal.info import DeviceKind
from crossinfer.hal.verdicts import VerdictStore
from crossinfer.plan.kernels import KernelSelector
from crossinfer.plan.layers import Split, whole
from crossinfer.plan.plan import Plan, make_plan
from crossinfer.plan.split import choose_split

_GPUS = (DeviceKind.DISCRETE_GPU, DeviceKind.INTEGRATED_GPU, DeviceKind.SOFTWARE_GPU)
_GAPS = 32
"""Of a GPU's memory, a part of this size is left: for gaps between tensors, and to the driver."""


def fit_split(
    build_largest: Callable[[], Graph],
    layers: int,
    devices: Sequence[Device],
    verdicts: VerdictStore,
    *,
    first_layers: int | None = None,
    stream: bool = False,
) -> Split:
    """Where the `layers` of a model go. Raises PlanError.

    `build_largest` gives the graph of its largest step; it is not asked where there is no choice.
    See `choose_split` for `first_layers` and `stream`.
    """
    bounded = [device.info.memory_bytes is not None for device in devices]
    if not any(bounded) and first_layers is None:
        return whole(layers)
    largest = build_largest()
    selector = KernelSelector(devices, verdicts)

    def activations(split: Split) -> list[int]:
        plan = make_plan(largest, devices, verdicts, split=split)
        return [_beside_weights(plan, number) for number in range(len(devices))]

    # What a device needs if it computes all that it can; in a division it may be more, since ops
    # that are apart are not fused.
    needed = [
        activations(whole(layers, number))[number] if is_bounded else 0
        for number, is_bounded in enumerate(bounded)
    ]
    while True:
        split = choose_split(largest, selector, needed, first_layers=first_layers, stream=stream)
        found = activations(split)
        if not any(b and f > n for b, f, n in zip(bounded, found, needed, strict=True)):
            return split
        needed = [max(pair) for pair in zip(found, needed, strict=True)]


def _beside_weights(plan: Plan, number: int) -> int:
    """Bytes that a plan takes of a device beside weights and KV cache."""
    info = plan.devices[number].info
    gaps = (info.memory_bytes or 0) // _GAPS if info.kind in _GPUS else 0
    return plan.arenas[number].size + plan.parameters.size + gaps
